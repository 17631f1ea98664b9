import assert from "node:assert/strict";
import type http from "node:http";
import { test } from "node:test";
import { parseFrames } from "../src/event-frames.ts";
import { wireOf } from "../src/convert/answer.ts";
import { Forkd } from "../src/forkd.ts";
import { nodeTransport } from "../src/node.ts";
import { startServer } from "./support.ts";

const id = "sb-aa0000000000000000000001";
const event = (number: number, type = "sandbox.died") => ({
  id: `0123456789ab-${number}`,
  type,
  at_unix: number,
});
const frame = (value: object) => `event: x\ndata: ${JSON.stringify(value)}\n\n`;

async function* chunks(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield new TextEncoder().encode(text);
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("parseFrames() reads frames from any chunks and skips the rest", async () => {
  const text =
    ": hello\n\nid: 1\nevent: a\ndata: {é1}\n\nretry: 5\n\ndata:two\r\ndata: lines\r\n\r\ndata: cut off";
  const expected = ["{é1}", "two\nlines"];
  assert.deepEqual(await all(parseFrames(chunks(text))), expected);
  const bytes = new TextEncoder().encode(text);
  const single = (async function* () {
    for (const byte of bytes) yield Uint8Array.of(byte);
  })();
  assert.deepEqual(await all(parseFrames(single)), expected);
});

test("events() continues with Last-Event-ID when the connection is lost", async () => {
  const asked: string[] = [];
  const answers = [
    (outgoing: http.ServerResponse) => {
      outgoing.write(frame(event(1)));
      outgoing.write(frame(event(2)), () => outgoing.destroy());
    },
    (outgoing: http.ServerResponse) => outgoing.destroy(),
    (outgoing: http.ServerResponse) => void outgoing.write(frame(event(3))),
  ];
  await using server = await startServer((incoming, outgoing) => {
    asked.push(`${incoming.url} ${String(incoming.headers["last-event-id"])}`);
    outgoing.flushHeaders();
    answers.shift()?.(outgoing);
  });
  for (const transport of [server.transports.unix]) {
    const forkd = new Forkd({ transport });
    const found: unknown[] = [];
    for await (const each of forkd.events({ types: ["sandbox.*"], sandbox: id, labels: ["a=1", "b"] })) {
      found.push(wireOf(each));
      if (found.length === 3) break;
    }
    assert.deepEqual(found, [event(1), event(2), event(3)]);
  }
  const path = `/v1/events?type=sandbox.*&sandbox=${id}&label=a%3D1&label=b`;
  assert.deepEqual(asked, [`${path} undefined`, `${path} 0123456789ab-2`, `${path} 0123456789ab-2`]);
});

test("events() requests a reset after an overflow, and does not yield the overflow", async () => {
  const asked: (string | undefined)[] = [];
  await using server = await startServer((incoming, outgoing) => {
    asked.push(incoming.headers["last-event-id"] as string | undefined);
    const value = asked.length === 1 ? event(7, "overflow") : event(9, "reset");
    outgoing.write(frame(value));
    if (asked.length === 1) outgoing.end();
  });
  const forkd = new Forkd({ transport: server.transports.tcp });
  for await (const each of forkd.events()) {
    assert.equal(each.type, "reset");
    break;
  }
  assert.deepEqual(asked, [undefined, "000000000000-0"]);
});

test("events() throws the reason when the key is revoked, and does not reconnect", async () => {
  let asked = 0;
  await using server = await startServer((_, outgoing) => {
    asked++;
    outgoing.end(frame({ ...event(7, "revoked"), reason: 'The key "ci" was removed' }));
  });
  const forkd = new Forkd({ transport: server.transports.tcp });
  await assert.rejects(all(forkd.events()), { code: "unauthenticated", message: /key "ci" was removed/ });
  assert.equal(asked, 1);
});

test("events() throws on abort, on a refusal, and when no daemon answers", async () => {
  let status = 200;
  await using server = await startServer((_, outgoing) => {
    outgoing.statusCode = status;
    outgoing.flushHeaders();
    if (status !== 200)
      outgoing.end(JSON.stringify({ error: "full", code: "capacity_exhausted", details: {} }));
  });
  const forkd = new Forkd({ transport: server.transports.fetch });
  const stop = new AbortController();
  const waiting = all(forkd.events({ signal: stop.signal }));
  setTimeout(() => stop.abort(), 20);
  await assert.rejects(waiting, { code: "cancelled" });
  status = 429;
  await assert.rejects(all(forkd.events()), { code: "capacity_exhausted" });
  const absent = new Forkd({ transport: nodeTransport({ socket: "/nonexistent/s" }) });
  await assert.rejects(all(absent.events({ retryMs: 1 })), { code: "daemon_unreachable" });
});

test("list() reads all pages, and stops at the limit", async () => {
  const asked: string[] = [];
  await using server = await startServer((incoming, outgoing) => {
    asked.push(incoming.url ?? "");
    const cursor = Number(new URL(incoming.url ?? "", "http://x").searchParams.get("cursor") ?? 0);
    if (cursor < 2) outgoing.setHeader("x-next-cursor", String(cursor + 1));
    outgoing.end(JSON.stringify([{ id: `${cursor}a` }, { id: `${cursor}b` }]));
  });
  for (const transport of Object.values(server.transports)) {
    asked.length = 0;
    const { sandboxes } = new Forkd({ transport });
    const ids = (await sandboxes.list({ label: ["a=1", "b"] }).all()).map((each) => each.id);
    assert.deepEqual(ids, ["0a", "0b", "1a", "1b", "2a", "2b"]);
    assert.deepEqual(asked, [
      "/v1/sandboxes?limit=1000&label=a%3D1&label=b",
      "/v1/sandboxes?limit=1000&cursor=1&label=a%3D1&label=b",
      "/v1/sandboxes?limit=1000&cursor=2&label=a%3D1&label=b",
    ]);
  }
  asked.length = 0;
  const { sandboxes } = new Forkd({ transport: server.transports.unix });
  assert.equal((await sandboxes.list({ limit: 4 }).all()).length, 4);
  assert.deepEqual(asked, ["/v1/sandboxes?limit=4", "/v1/sandboxes?limit=2&cursor=1"]);
});

test("calls that create something send their idempotency key", async () => {
  const keys: unknown[] = [];
  await using server = await startServer((incoming, outgoing) => {
    keys.push(incoming.headers["idempotency-key"]);
    const entry = { id, children: [] };
    outgoing.end(JSON.stringify(incoming.url === "/v1/sandboxes" ? [entry] : entry));
  });
  for (const transport of Object.values(server.transports)) {
    keys.length = 0;
    const forkd = new Forkd({ transport });
    const sandbox = await forkd.create("py", { idempotencyKey: "a" });
    await sandbox.branch({ idempotencyKey: "b" });
    await forkd.workspaces.create("w", "py", { idempotencyKey: "c" });
    await forkd.create("py");
    assert.deepEqual(keys, ["a", "b", "c", undefined]);
  }
});
