/**
 * Commands while the daemon restarts: a plain HTTP server that closes and then uses the same socket again.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Client } from "../src/client.ts";
import { Commands } from "../src/commands.ts";
import { nodeTransport } from "../src/node.ts";
import { readBody } from "./support.ts";

type Answer = (outgoing: http.ServerResponse, request: { url: string; body: string }) => void;

const id = "sb-0123456789abcdef01234567";
const started = { type: "started", exec_id: 3, pid: 9 };
const exit = { type: "exit", exit_code: 0, timed_out: false, duration_ms: 1 };
const text = (type: string, offset: number, data: string) => ({ type, offset, data, encoding: "utf8" });
const line = (value: unknown) => `${JSON.stringify(value)}\n`;

async function openHost(): Promise<
  AsyncDisposable & { commands: Commands; up: (answer: Answer) => Promise<void>; down: () => Promise<void> }
> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
  const socket = join(dir, "s");
  let server: http.Server | undefined;
  const down = async () => {
    const old = server;
    server = undefined;
    if (old === undefined) return;
    const closed = new Promise((resolve) => old.close(resolve));
    old.closeAllConnections();
    await closed;
  };
  return {
    commands: new Commands(new Client(nodeTransport({ socket })), id),
    up: async (answer) => {
      const made = (server = http.createServer((incoming, outgoing) => {
        void readBody(incoming).then((body) => answer(outgoing, { url: incoming.url ?? "", body }));
      }));
      await new Promise<void>((resolve) => made.listen(socket, resolve));
    },
    down,
    [Symbol.asyncDispose]: async () => {
      await down();
      await rm(dir, { recursive: true });
    },
  };
}

test("a handle continues after a restart from the last byte it received", { timeout: 60_000 }, async () => {
  await using host = await openHost();
  await host.up((outgoing) => {
    outgoing.write(line(started) + line(text("stdout", 0, "é\n")));
    outgoing.write(line({ type: "stderr", offset: 0, data: "/wA=", encoding: "base64" }));
  });
  const handle = await host.commands.start(["x"]);
  const asked: string[] = [];
  for await (const event of handle) {
    if (event.type !== "stderr") continue;
    await host.down();
    await host.up((outgoing, { url }) => {
      asked.push(url);
      outgoing.end(line(text("stdout", 3, "z")) + line(exit));
    });
  }
  assert.deepEqual(asked, [`/v1/sandboxes/${id}/execs/3/stream?stdout_offset=3&stderr_offset=2`]);
  assert.equal((await handle.wait()).stdout, "é\nz");
});

test("input written while no daemon runs reaches the next one, once", { timeout: 60_000 }, async () => {
  await using host = await openHost();
  await host.up((outgoing) => void outgoing.write(line(started)));
  const handle = await host.commands.start(["x"], { stdinOpen: true });
  const result = handle.wait();
  await host.down();
  const written = handle.write("typed");
  // When this call has failed, at least one attempt to write has failed too.
  await assert.rejects(host.commands.list(), { code: "daemon_unreachable" });
  const inputs: string[] = [];
  let stream: http.ServerResponse | undefined;
  await host.up((outgoing, { url, body }) => {
    if (url.includes("/stream")) {
      stream = outgoing;
      outgoing.flushHeaders();
    } else {
      inputs.push(body);
      outgoing.end();
    }
    if (stream && inputs.length > 0) stream.end(line(exit));
  });
  await written;
  await result;
  assert.deepEqual(
    inputs.map((body) => JSON.parse(body) as unknown),
    [{ data: Buffer.from("typed").toString("base64"), encoding: "base64" }],
  );
});

test("an abort while no daemon runs rejects with cancelled", { timeout: 60_000 }, async () => {
  await using host = await openHost();
  const abort = new AbortController();
  await host.up((outgoing) => void outgoing.write(line(started)));
  const handle = await host.commands.start(["x"], { signal: abort.signal });
  const result = assert.rejects(handle.wait(), { code: "cancelled" });
  await host.down();
  abort.abort();
  await result;
});

test(
  "a command of start() is killed when its reader stops, also after a restart",
  { timeout: 60_000 },
  async () => {
    await using host = await openHost();
    await host.up((outgoing) => void outgoing.write(line(started)));
    const handle = await host.commands.start(["x"]);
    const asked: unknown[] = [];
    for await (const event of handle) {
      if (event.type === "stdout") break;
      await host.down();
      await host.up((outgoing, { url, body }) => {
        if (url.includes("/stream")) return void outgoing.write(line(text("stdout", 0, "z")));
        asked.push([url, JSON.parse(body)]);
        outgoing.end();
      });
    }
    assert.deepEqual(asked, [[`/v1/sandboxes/${id}/execs/3/signal`, { signal: "SIGKILL" }]]);
  },
);
