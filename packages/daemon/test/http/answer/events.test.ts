import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { test } from "node:test";
import { EventBus } from "@forkd/runtime";
import { sendEvents } from "../../../src/http/answer/events.ts";
import type { Handlers } from "../../../src/http/handlers.ts";
import { open, send, startServer } from "../../support.ts";

type Frame = { id?: string; event?: string; data?: string; comment?: string };

/** Frames of a stream by the rules of the format: fields end with a line, frames with an empty one. */
class Frames {
  readonly all: Frame[] = [];
  readonly response: http.IncomingMessage;
  ended = false;
  #text = "";
  #changed = () => {};

  constructor(response: http.IncomingMessage) {
    this.response = response;
    response.setEncoding("utf8");
    response.on("data", (chunk: string) => {
      this.#text += chunk;
      const parts = this.#text.split("\n\n");
      this.#text = parts.pop() ?? "";
      for (const part of parts) this.all.push(parseFrame(part));
      this.#changed();
    });
    response.on("close", () => {
      this.ended = true;
      this.#changed();
    });
  }

  get events(): Frame[] {
    return this.all.filter(({ event }) => event !== undefined);
  }

  async until(isTrue: () => boolean): Promise<void> {
    while (!isTrue()) await new Promise<void>((resolve) => (this.#changed = resolve));
  }
}

function parseFrame(text: string): Frame {
  const frame: Frame = {};
  for (const line of text.split("\n")) {
    const match = /^(id|event|data|): (.*)$/.exec(line);
    assert.ok(match, `not a line of a frame: ${line}`);
    const name = (match[1] || "comment") as keyof Frame;
    assert.equal(frame[name], undefined, `${name} twice`);
    frame[name] = match[2] ?? "";
  }
  return frame;
}

async function listen(where: string, path: string, headers: Record<string, string> = {}): Promise<Frames> {
  const request = open(where, path, { headers });
  request.end();
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  assert.equal(response.statusCode, 200);
  const frames = new Frames(response);
  await frames.until(() => frames.all.length > 0);
  return frames;
}

function handlersOf(bus: EventBus): Partial<Handlers> {
  return {
    events: ({ after, ...filter }, { lastEventId, signal, caller }) =>
      bus.listen(filter, { after: lastEventId ?? after, signal, owner: caller?.name }),
  };
}

const tell = (bus: EventBus, ...tags: string[]) => {
  for (const tag of tags) bus.snapshot("snapshot.ready", tag, { status: "ready" });
};

test("GET /v1/events frames every event with id, type and data", async () => {
  const bus = new EventBus();
  await using server = await startServer(handlersOf(bus));
  const frames = await listen(server.socket, "/v1/events");
  assert.equal(frames.response.headers["content-type"], "text/event-stream");
  assert.equal(frames.response.headers["cache-control"], "no-store");
  assert.deepEqual(frames.all, [{ comment: "listening" }]);
  tell(bus, "a", "b");
  await frames.until(() => frames.events.length === 2);
  for (const [nth, { id, event, data }] of frames.events.entries()) {
    assert.equal(id, `${bus.epoch}-${nth + 1}`);
    assert.equal(event, "snapshot.ready");
    const { at_unix, ...rest } = JSON.parse(data ?? "") as Record<string, unknown>;
    assert.equal(typeof at_unix, "number");
    assert.deepEqual(rest, { id, type: event, tag: nth === 0 ? "a" : "b", status: "ready" });
  }
  frames.response.destroy();
});

test("GET /v1/events resumes after Last-Event-ID, or ?after, and the header wins", async () => {
  const bus = new EventBus();
  tell(bus, "a", "b", "c");
  await using server = await startServer(handlersOf(bus));
  const id = (number: number) => `${bus.epoch}-${number}`;
  for (const [path, headers, expected] of [
    ["/v1/events", { "last-event-id": id(1) }, ["b", "c"]],
    [`/v1/events?after=${id(2)}`, {}, ["c"]],
    [`/v1/events?after=${id(2)}`, { "last-event-id": id(1) }, ["b", "c"]],
  ] as const) {
    const frames = await listen(server.socket, path, headers);
    await frames.until(() => frames.events.length === expected.length);
    const tags = frames.events.map(({ data }) => (JSON.parse(data ?? "") as { tag: string }).tag);
    assert.deepEqual(tags, expected);
    frames.response.destroy();
  }
});

test("GET /v1/events begins with reset after an id of another run, and refuses an invalid id", async () => {
  const bus = new EventBus();
  await using server = await startServer(handlersOf(bus));
  const frames = await listen(server.socket, "/v1/events?type=sandbox.died", {
    "last-event-id": "00ff00ff00ff-17",
  });
  await frames.until(() => frames.events.length === 1);
  assert.equal(frames.events[0]?.event, "reset");
  frames.response.destroy();
  const refused = await send(server.socket, "/v1/events", { headers: { "last-event-id": "seventeen" } });
  assert.equal(refused.status, 400);
  assert.match(refused.json.error, /is not the id of an event/);
});

test("GET /v1/events filters by type, repeated, joined and by kind, and names the types it knows", async () => {
  const bus = new EventBus();
  await using server = await startServer(handlersOf(bus));
  const queries = [
    "type=snapshot.ready&type=snapshot.removed",
    "type=snapshot.ready,snapshot.removed",
    "type=snapshot.*",
  ];
  for (const query of queries) {
    const frames = await listen(server.socket, `/v1/events?${query}&tag=b`);
    tell(bus, "a");
    bus.snapshot("snapshot.removed", "b");
    tell(bus, "b");
    await frames.until(() => frames.events.length === 2);
    assert.deepEqual(
      frames.events.map(({ event }) => event),
      ["snapshot.removed", "snapshot.ready"],
      query,
    );
    frames.response.destroy();
  }
  const wrong = await send(server.socket, "/v1/events?type=snapshot.eaten");
  assert.equal(wrong.json.code, "invalid_request");
  assert.match(wrong.json.error, /type: must be one of: sandbox\.created, /);
});

test("GET /v1/events releases its slot when the client disconnects, and refuses one too many", async () => {
  const bus = new EventBus({ maxListeners: 1 });
  await using server = await startServer(handlersOf(bus));
  const frames = await listen(server.socket, "/v1/events");
  const refused = await send(server.socket, "/v1/events");
  assert.deepEqual([refused.status, refused.json.code], [429, "capacity_exhausted"]);
  frames.response.destroy();
  // Only the server sees the end of the connection.
  while (bus.listeners > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  (await listen(server.socket, "/v1/events")).response.destroy();
});

test("GET /v1/events leaves room to others when one caller has as many streams as it may", async () => {
  const bus = new EventBus({ maxPerOwner: 1 });
  await using server = await startServer(handlersOf(bus));
  const bearer = async (name: string) => {
    const { key } = await server.keys.create({ name, scope: "read" });
    return { authorization: `Bearer ${key}` };
  };
  const [greedy, other] = [await bearer("greedy"), await bearer("other")];
  const first = await listen(server.url, "/v1/events", greedy);
  const refused = await send(server.url, "/v1/events", { headers: greedy });
  assert.deepEqual([refused.status, refused.json.code], [429, "capacity_exhausted"]);
  assert.match(refused.json.error, /"greedy" has 1 stream open/);
  const second = await listen(server.url, "/v1/events", other);
  for (const { response } of [first, second]) response.destroy();
});

test("GET /v1/events ends the stream of a client that does not read, and keeps nothing for it", async () => {
  const bus = new EventBus({ kept: 50 });
  await using server = await startServer(handlersOf(bus));
  const socket = net.connect(server.socket);
  socket.write("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  await once(socket, "readable");
  // From here on nothing is read. What the kernel and Node hold for a socket is bounded, so that it fills up.
  const reason = "x".repeat(10_000);
  while (bus.listeners > 0) {
    bus.snapshot("snapshot.failed", "big", { status: "failed", reason });
    await new Promise((resolve) => setImmediate(resolve));
  }
  let text = "";
  socket.setEncoding("utf8");
  socket.on("data", (chunk: string) => (text += chunk));
  await once(socket, "close");
  assert.match(text, /\nevent: overflow\ndata: \{[^\n]*events were lost[^\n]*\}\n\n/);
  const ids = [...text.matchAll(/^id: [0-9a-f]+-(\d+)$/gm)].map(([, number]) => Number(number));
  const missed = (ids.at(-1) ?? 0) - (ids.at(-2) ?? 0);
  assert.ok(missed >= 50, `the client heard of it after missing ${missed}`);
});

test("GET /v1/events ends after daemon.stopping, so that closing the server does not wait", async () => {
  const bus = new EventBus();
  await using server = await startServer(handlersOf(bus));
  const frames = await listen(server.socket, "/v1/events");
  bus.close();
  await server.close(3_600_000);
  await frames.until(() => frames.ended);
  assert.deepEqual(
    frames.events.map(({ event }) => event),
    ["daemon.stopping"],
  );
});

test("sendEvents() writes comments while nothing happens", async () => {
  const bus = new EventBus();
  const server = http.createServer((_, outgoing) => {
    void sendEvents(outgoing, bus.listen({}), {
      keepAliveMs: 5,
      signal: new AbortController().signal,
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as net.AddressInfo;
  const frames = await listen(`http://127.0.0.1:${port}`, "/");
  await frames.until(() => frames.all.length >= 3);
  assert.deepEqual(frames.all.slice(1, 3), [{ comment: "keep-alive" }, { comment: "keep-alive" }]);
  frames.response.destroy();
  bus.close();
  await new Promise((resolve) => server.close(resolve));
});
