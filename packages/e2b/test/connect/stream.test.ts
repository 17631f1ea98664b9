/** Streams to a real client over a real connection. */
import assert from "node:assert/strict";
import http, { type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { AppError } from "@forkd/contract";
import { gate, until } from "@forkd/test-support";
import { sendStream, type StreamOptions } from "../../src/connect/stream.ts";

type Serve = (outgoing: ServerResponse, signal: AbortSignal) => Promise<void>;
let serve: Serve;
const server = http.createServer((_incoming, outgoing) => {
  const gone = new AbortController();
  outgoing.once("close", () => gone.abort());
  void serve(outgoing, gone.signal);
});
before(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
after(() => server.close());

const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const options = (signal: AbortSignal, more: Partial<StreamOptions> = {}): StreamOptions => ({
  signal,
  keepaliveMs: 60_000,
  keepalive: { keepalive: {} },
  breaksOn: ({ code }) => code === "sandbox_dead",
  ...more,
});

function framesOf(body: Buffer): { flags: number; message: unknown }[] {
  const frames = [];
  for (let at = 0; at < body.length;) {
    const length = body.readUInt32BE(at + 1);
    const json = body.toString("utf8", at + 5, at + 5 + length);
    frames.push({ flags: body.readUInt8(at), message: JSON.parse(json) as unknown });
    at += 5 + length;
  }
  return frames;
}

async function read(): Promise<{ flags: number; message: unknown }[]> {
  const answer = await fetch(url());
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "application/connect+json");
  return framesOf(Buffer.from(await answer.arrayBuffer()));
}

async function* numbers(count: number): AsyncGenerator<object> {
  for (let at = 0; at < count; at++) yield { at };
}

/** Ends only when the signal fires. */
async function* endless(signal: AbortSignal, first: object[]): AsyncGenerator<object> {
  yield* first;
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}

test("sendStream() sends messages in order and then the end", async () => {
  serve = async (outgoing, signal) => {
    assert.equal(await sendStream(outgoing, async () => numbers(3), options(signal)), undefined);
  };
  assert.deepEqual(await read(), [
    { flags: 0, message: { at: 0 } },
    { flags: 0, message: { at: 1 } },
    { flags: 0, message: { at: 2 } },
    { flags: 2, message: {} },
  ]);
});

test("a failure is in the last frame", async () => {
  serve = async (outgoing, signal) => {
    const open = () => Promise.reject(new AppError("exec_not_found", "process with pid 1 not found"));
    assert.equal((await sendStream(outgoing, open, options(signal)))?.code, "exec_not_found");
  };
  const error = { code: "not_found", message: "process with pid 1 not found" };
  assert.deepEqual(await read(), [{ flags: 2, message: { error } }]);
});

test("the deadline ends the stream with deadline_exceeded and stops the source", async () => {
  const stopped = gate();
  serve = async (outgoing, signal) => {
    const open = async (stop: AbortSignal) => {
      stop.addEventListener("abort", stopped.open, { once: true });
      return endless(stop, [{ at: 0 }]);
    };
    await sendStream(outgoing, open, options(signal, { timeoutMs: 20 }));
  };
  const [first, last] = await read();
  assert.deepEqual(first?.message, { at: 0 });
  assert.match(JSON.stringify(last?.message), /"code":"deadline_exceeded"/);
  await stopped.opened;
});

test("a silent stream sends keepalives, but not before its first message", async () => {
  const begin = gate();
  serve = async (outgoing, signal) => {
    let isOpen = true;
    const source = async function* (): AsyncGenerator<object> {
      await begin.opened;
      yield { at: 0 };
      await until("keepalives are sent", () => !isOpen);
    };
    const write = outgoing.write.bind(outgoing) as (bytes: Buffer) => boolean;
    let count = 0;
    outgoing.write = ((bytes: Buffer) => {
      if (bytes.includes("keepalive") && ++count === 2) isOpen = false;
      return write(bytes);
    }) as typeof outgoing.write;
    setTimeout(begin.open, 30);
    await sendStream(outgoing, async () => source(), options(signal, { keepaliveMs: 5 }));
  };
  const messages = (await read()).map(({ message }) => message);
  assert.deepEqual(messages.slice(0, 3), [{ at: 0 }, { keepalive: {} }, { keepalive: {} }]);
});

test("the connection breaks when the sandbox has ended", async () => {
  serve = async (outgoing, signal) => {
    const source = async function* (): AsyncGenerator<object> {
      yield { at: 0 };
      throw new AppError("sandbox_dead", "gone");
    };
    await sendStream(outgoing, async () => source(), options(signal));
  };
  await assert.rejects(async () => (await fetch(url())).arrayBuffer());
});

test("the source stops when the client goes, and is read at the pace of the client", async () => {
  const stopped = gate();
  let sent = 0;
  serve = async (outgoing, signal) => {
    const source = async function* (stop: AbortSignal): AsyncGenerator<object> {
      const text = "x".repeat(64 * 1024);
      while (!stop.aborted) {
        yield { text };
        sent++;
      }
    };
    const open = async (stop: AbortSignal) => {
      stop.addEventListener("abort", stopped.open, { once: true });
      return source(stop);
    };
    assert.equal(await sendStream(outgoing, open, options(signal)), undefined);
  };
  const client = http.get(url());
  const answer = await new Promise<http.IncomingMessage>((resolve) => client.once("response", resolve));
  answer.once("data", () => answer.pause());
  let last = -1;
  await until("the source waits", async () => {
    const isSame = sent === last && sent > 0;
    last = sent;
    await new Promise((resolve) => setTimeout(resolve, 50));
    return isSame;
  });
  assert.ok(sent < 1000, `${sent} messages were read for a client that does not read`);
  client.destroy();
  await stopped.opened;
});
