import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { test } from "node:test";
import { AppError, type ExecEvent, type SnapshotInfo } from "@forkd/contract";
import { buildEvents } from "../../../src/handlers/build-events.ts";
import { deferred, open, post, sandboxId, send, startServer } from "../../support.ts";

const execPath = `/v1/sandboxes/${sandboxId}/exec`;
const started: ExecEvent = { type: "started", exec_id: 1, pid: 7 };
const exit: ExecEvent = { type: "exit", exit_code: 0, timed_out: false, duration_ms: 1 };

async function openStream(
  socket: string,
  path = execPath,
): Promise<{ response: IncomingMessage; leave: () => void }> {
  const request = open(socket, path, { method: path === execPath ? "POST" : "GET" });
  request.on("error", () => undefined);
  request.end(path === execPath ? JSON.stringify({ args: ["x"], stream: true }) : undefined);
  const [response] = (await once(request, "response")) as [IncomingMessage];
  response.on("error", () => undefined);
  return { response, leave: () => request.destroy() };
}

test("sendLines() writes each event as a line at once", async () => {
  const goOn = deferred();
  await using server = await startServer({
    exec: async (input) => {
      assert.equal(input.stream, true);
      return (async function* () {
        yield started;
        await goOn.promise;
        yield exit;
      })();
    },
  });
  const { response } = await openStream(server.socket);
  assert.equal(response.statusCode, 200);
  assert.equal(response.headers["content-type"], "application/x-ndjson");
  const [first] = (await once(response, "data")) as [Buffer];
  assert.deepEqual(JSON.parse(String(first)), started);
  const ended = once(response, "end");
  goOn.resolve();
  const [second] = (await once(response, "data")) as [Buffer];
  assert.deepEqual(JSON.parse(String(second)), exit);
  await ended;
});

test("sendLines() sends the head before there is an event", async () => {
  const never = deferred();
  await using server = await startServer({
    attachExec: async (_, { signal }) =>
      (async function* () {
        signal.addEventListener("abort", () => never.resolve());
        await never.promise;
        yield exit;
      })(),
  });
  const { response, leave } = await openStream(server.socket, `/v1/sandboxes/${sandboxId}/execs/1/stream`);
  assert.equal(response.statusCode, 200);
  leave();
  await never.promise;
});

test("sendLines() ends with an error line when the events fail", async () => {
  await using server = await startServer({
    exec: async () =>
      (async function* () {
        yield started;
        throw new AppError("agent_unreachable", "The agent is gone", { details: { a: 1 } });
      })(),
  });
  const answer = await post(server.socket, execPath, { args: ["x"], stream: true }, { "x-request-id": "r1" });
  const lines = answer.text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as unknown);
  assert.deepEqual(lines, [
    started,
    {
      type: "error",
      error: "The agent is gone",
      code: "agent_unreachable",
      details: { a: 1 },
      request_id: "r1",
    },
  ]);
});

test("a rejection before the first line is a status", async () => {
  await using server = await startServer({
    exec: () => Promise.reject(new AppError("sandbox_dead", "It is dead")),
  });
  const answer = await post(server.socket, execPath, { args: ["x"], stream: true });
  assert.equal(answer.status, 409);
  assert.equal(answer.json.code, "sandbox_dead");
});

test("sendLines() reads no faster than a slow client, and ends when the client disconnects", async () => {
  let made = 0;
  const returned = deferred();
  const aborted = deferred();
  await using server = await startServer({
    exec: async (_, { signal }) => {
      signal.addEventListener("abort", () => aborted.resolve());
      return (async function* () {
        try {
          for (;;) {
            made++;
            yield { type: "stdout", offset: 0, data: "x".repeat(65536), encoding: "utf8" } as const;
          }
        } finally {
          returned.resolve();
        }
      })();
    },
  });
  const { response, leave } = await openStream(server.socket);
  await once(response, "readable");
  let before = -1;
  // The writer is blocked once nothing more has been made for several turns.
  for (let still = 0; still < 20; still = before === made ? still + 1 : 0) {
    before = made;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.ok(made < 200, `${made} events were made although the client did not read`);
  leave();
  await Promise.all([returned.promise, aborted.promise]);
});

test("a client that disconnects while nothing happens fires the signal and return()", async () => {
  const aborted = deferred();
  const returned = deferred();
  await using server = await startServer({
    attachExec: async (_, { signal }) => {
      signal.addEventListener("abort", () => aborted.resolve());
      let pending: ((result: IteratorResult<ExecEvent>) => void) | undefined;
      return {
        [Symbol.asyncIterator]: () => ({
          next: () => new Promise<IteratorResult<ExecEvent>>((resolve) => (pending = resolve)),
          return: () => {
            returned.resolve();
            pending?.({ done: true, value: undefined });
            return Promise.resolve({ done: true as const, value: undefined });
          },
        }),
      };
    },
  });
  const { leave } = await openStream(server.socket, `/v1/sandboxes/${sandboxId}/execs/1/stream`);
  leave();
  await Promise.all([aborted.promise, returned.promise]);
});

test("a client that disconnects before the answer fires the signal of a plain request", async () => {
  const entered = deferred();
  const aborted = deferred<unknown>();
  await using server = await startServer({
    listSnapshots: () => Promise.resolve([]),
    exec: (_, { signal }) => {
      signal.addEventListener("abort", () => aborted.resolve(signal.reason));
      entered.resolve();
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason as Error)),
      );
    },
  });
  const request = open(server.socket, execPath, { method: "POST" });
  request.on("error", () => undefined);
  request.end(JSON.stringify({ args: ["x"] }));
  await entered.promise;
  request.destroy();
  assert.equal(((await aborted.promise) as AppError).code, "cancelled");
  assert.equal((await send(server.socket, "/v1/snapshots")).status, 200);
});

test("the signal does not fire after a complete answer", async () => {
  let seen: AbortSignal | undefined;
  await using server = await startServer({
    exec: async (_, { signal }) => {
      seen = signal;
      return { exec_id: 1, pid: 2 };
    },
  });
  const answer = await post(server.socket, execPath, { args: ["x"], background: true });
  assert.deepEqual(answer.json, { exec_id: 1, pid: 2 });
  await server.close(0);
  assert.equal(seen?.aborted, false);
});

test("sendBytes() passes bytes through and destroys the connection when they fail", async () => {
  await using server = await startServer({
    readFile: async (input) =>
      (async function* () {
        yield Buffer.from([0, 255, 10]);
        if (input.path === "/bad") throw new AppError("agent_unreachable", "gone");
        yield Buffer.from("end");
      })(),
  });
  const good = await send(server.socket, `/v1/sandboxes/${sandboxId}/files?path=/good`);
  assert.equal(good.headers["content-type"], "application/octet-stream");
  assert.equal(good.text.slice(-3), "end");
  await assert.rejects(send(server.socket, `/v1/sandboxes/${sandboxId}/files?path=/bad`));
});

test("an upload reaches the handler as it arrives, and the unread rest is dropped", async () => {
  let first: Uint8Array | undefined;
  await using server = await startServer({
    writeFile: async (_, { content }) => {
      for await (const chunk of content) {
        first = chunk;
        break;
      }
      throw new AppError("disk_full", "No space");
    },
  });
  const path = `/v1/sandboxes/${sandboxId}/files?path=/a`;
  const answer = await send(server.socket, path, { method: "PUT", body: Buffer.alloc(8 << 20, "x") });
  assert.equal(answer.status, 507);
  assert.ok((first?.length ?? 0) > 0);
});

test("buildEvents() yields progress and the time of each step, then the snapshot", async () => {
  const snapshot = { tag: "py" } as SnapshotInfo;
  const events = await buildEvents(async (onProgress) => {
    onProgress("a", "one");
    await Promise.resolve();
    onProgress("a", "more");
    onProgress("b", "two");
    return snapshot;
  });
  const seen = [];
  for await (const event of events) {
    if (event.type === "progress") seen.push(event.step);
    else if (event.type === "step") {
      seen.push(`${event.step} ended: ${event.message}`);
      assert.ok(Number.isInteger(event.duration_ms) && event.duration_ms >= 0);
    } else seen.push(event.type);
  }
  assert.deepEqual(seen, ["a", "a", "a ended: more", "b", "b ended: two", "snapshot"]);
});

test("buildEvents() rejects before any progress and throws after it", async () => {
  const taken = new AppError("snapshot_exists", "It exists");
  await assert.rejects(
    buildEvents(() => Promise.reject(taken)),
    { code: "snapshot_exists" },
  );
  const events = await buildEvents(async (onProgress) => {
    onProgress("a", "one");
    await Promise.resolve();
    throw taken;
  });
  const seen: string[] = [];
  await assert.rejects(
    async () => {
      for await (const event of events) seen.push(event.type);
    },
    { code: "snapshot_exists" },
  );
  assert.deepEqual(seen, ["progress"]);
});
