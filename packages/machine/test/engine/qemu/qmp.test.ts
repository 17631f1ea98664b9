import assert from "node:assert/strict";
import { createInterface, type Interface } from "node:readline";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { vmmDeadlines } from "../../../src/deadlines.ts";
import { QmpClient } from "../../../src/engine/qemu/qmp.ts";
import { rejectsWith } from "@forkd/test-support";
import { socketPair } from "../../support.ts";

type Command = { execute: string; arguments?: unknown; id: number };

/** QEMU's end of the connection, controlled by the test. */
class Peer {
  readonly socket: Socket;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;

  constructor(socket: Socket) {
    this.socket = socket;
    this.#reader = createInterface({ input: socket });
    this.#lines = this.#reader[Symbol.asyncIterator]();
    socket.on("error", () => undefined);
  }

  async command(): Promise<Command> {
    const { value } = await this.#lines.next();
    return JSON.parse(value as string) as Command;
  }

  say(message: unknown): void {
    this.socket.write(`${JSON.stringify(message)}\n`);
  }
}

async function connected(t: TestContext): Promise<{ client: QmpClient; peer: Peer }> {
  const [near, far] = await socketPair(t);
  return { client: new QmpClient(near), peer: new Peer(far) };
}

/** An event that takes longer is considered missing. */
const deadline = { timeout: 120_000 };

const greeting = { QMP: { version: { qemu: { major: 10, minor: 0, micro: 2 } }, capabilities: ["oob"] } };

test("open() waits for the greeting and then negotiates", deadline, async (t) => {
  const { client, peer } = await connected(t);
  let isOpen = false;
  const opening = client.open().then(() => (isOpen = true));
  peer.say(greeting);
  assert.deepEqual(await peer.command(), { execute: "qmp_capabilities", id: 1 });
  assert.equal(isOpen, false);
  peer.say({ return: {}, id: 1 });
  await opening;
});

test("open() rejects if the process exits before its greeting", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const opening = client.open();
  peer.socket.destroy();
  await rejectsWith(opening, "engine_failed", /closed its control socket/);
});

test("execute() sends at once and matches answers by id, in any order", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const first = client.execute("stop");
  const second = client.execute("query-status", { deep: [1, "a"] });
  assert.deepEqual(await peer.command(), { execute: "stop", id: 1 });
  assert.deepEqual(await peer.command(), { execute: "query-status", arguments: { deep: [1, "a"] }, id: 2 });
  peer.say({ return: { status: "paused" }, id: 2 });
  assert.deepEqual(await second, { status: "paused" });
  peer.say({ return: {}, id: 1 });
  assert.deepEqual(await first, {});
});

test("execute() rejects with QEMU's message, and the connection stays open", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const failing = client.execute("migrate-incoming");
  peer.say({ error: { class: "GenericError", desc: "No such file" }, id: 1 });
  await rejectsWith(failing, "engine_failed", /Cannot migrate-incoming: No such file/);
  await assert.rejects(failing, { details: { qmp_class: "GenericError" } });
  const next = client.execute("cont");
  peer.say({ return: 7, id: 2 });
  assert.equal(await next, 7);
});

test("execute() ignores answers to no request, empty lines and unknown members", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const answer = client.execute("stop");
  peer.say({ return: "wrong", id: 99 });
  peer.say({ return: "no id" });
  peer.socket.write("\r\n  \n");
  peer.say({ event: "RESUME", timestamp: { seconds: 1 }, extra: true });
  peer.say({ return: "right", id: 1, surprise: {} });
  assert.equal(await answer, "right");
});

test("QmpClient joins lines from pieces and splits several lines in one piece", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const answers = [client.execute("a"), client.execute("b"), client.execute("c")];
  const text = [1, 2, 3].map((id) => `${JSON.stringify({ return: `é${id}`, id })}\n`).join("");
  const bytes = Buffer.from(text);
  // Split inside the first é and inside the second line.
  for (const [from, to] of [
    [0, 12],
    [12, 40],
    [40, bytes.length],
  ]) {
    peer.socket.write(bytes.subarray(from, to));
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual(await Promise.all(answers), ["é1", "é2", "é3"]);
});

test("event() resolves with the next matching event of that name", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const completed = client.event("MIGRATION", (data) => data["status"] === "completed");
  const any = client.event("MIGRATION");
  const stopped = client.event("STOP");
  peer.say({ event: "MIGRATION", data: { status: "active" } });
  peer.say({ event: "MIGRATION", data: { status: "completed" } });
  peer.say({ event: "STOP" });
  assert.deepEqual(await any, { status: "active" });
  assert.deepEqual(await completed, { status: "completed" });
  assert.deepEqual(await stopped, {});
});

test("QmpClient closes the connection after an invalid line", deadline, async (t) => {
  for (const garbage of ["not json", "[]", '"text"', '{"event":5}', '{"id":"1","return":{}}']) {
    const { client, peer } = await connected(t);
    const pending = client.execute("stop");
    const closed = once(peer.socket, "close");
    peer.socket.write(`${garbage}\n`);
    await rejectsWith(pending, "engine_failed", /Cannot understand QEMU's control message/);
    await closed;
  }
});

test("QmpClient closes the connection when a line is too long", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const pending = client.execute("stop");
  const closed = once(peer.socket, "close");
  peer.socket.write("x".repeat((4 << 20) + 1));
  await rejectsWith(pending, "engine_failed", /closed its control socket/);
  await closed;
});

test("QmpClient accepts a long line below the limit", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const answer = client.execute("query-all");
  const long = "x".repeat(3_000_000);
  peer.say({ return: long, id: 1 });
  assert.equal(await answer, long);
});

test("QmpClient rejects pending and later calls when the connection ends", deadline, async (t) => {
  const { client, peer } = await connected(t);
  const pending = [client.execute("stop"), client.execute("cont"), client.event("STOP")];
  peer.socket.destroy();
  for (const each of pending) await rejectsWith(each, "engine_failed", /closed its control socket/);
  await rejectsWith(client.execute("stop"), "engine_failed", /closed its control socket/);
  await rejectsWith(client.event("STOP"), "engine_failed", /closed its control socket/);
  await rejectsWith(client.open(), "engine_failed", /closed its control socket/);
});

const short = { ...vmmDeadlines, commandMs: 20, greetingMs: 20, loadMs: 20 };

test("QmpClient gives up a QEMU that misses a deadline, and reports it once", deadline, async (t) => {
  const waits: Record<string, (client: QmpClient) => Promise<unknown>> = {
    "did not start": (client) => client.open(),
    'did not answer "stop"': (client) => client.execute("stop"),
    "did not send MIGRATION": (client) => client.event("MIGRATION"),
  };
  for (const [text, wait] of Object.entries(waits)) {
    const [near] = await socketPair(t);
    const client = new QmpClient(near, short);
    const reports: string[] = [];
    client.onLate((reason) => void reports.push(reason));
    const other = client.eventEver("NEVER");
    await rejectsWith(wait(client), "engine_failed", new RegExp(`the VMM ${text} within`));
    await rejectsWith(other, "engine_failed", new RegExp(text));
    await rejectsWith(client.execute("cont"), "engine_failed", new RegExp(text));
    assert.equal(reports.length, 1);
    assert.match(reports[0] ?? "", new RegExp(text));
  }
});
