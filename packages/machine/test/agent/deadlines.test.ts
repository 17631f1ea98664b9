/** Guests that stop answering: every call ends. The deadlines are short; none of them is measured. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { createDeferred } from "@forkd/base";
import { rejectsWith } from "@forkd/test-support";
import {
  changeMode,
  listFiles,
  makeDirectory,
  moveFile,
  readFile,
  removeFile,
  statFile,
  writeFile,
} from "../../src/agent/files.ts";
import type { AgentClient } from "../../src/agent/client.ts";
import { encodeField, frameType } from "../../src/agent/wire/frames.ts";
import { guestDeadlines } from "../../src/deadlines.ts";
import { FakeGuest, u32 } from "./support/fake-guest.ts";

const short = { ...guestDeadlines, replyMs: 20, syncMs: 20, quietMs: 10, pingMs: 20, killMs: 20 };
/** A guest that answers these pings is alive; the operation may take as long as it likes. */
const patient = { ...guestDeadlines, quietMs: 5, pingMs: 60_000, killMs: 20 };

const calls: Record<string, (client: AgentClient) => Promise<unknown>> = {
  ping: (client) => client.ping(),
  sync: (client) => client.sync(),
  list: (client) => client.list(),
  setClock: (client) => client.setClock(() => 1n),
  afterFork: (client) => client.afterFork({ entropy: Buffer.alloc(64), realtimeNs: () => 1n }),
  setNetwork: (client) => client.setNetwork(true),
  started: (client) => client.start({ argv: ["true"] }).started,
  attached: (client) => client.attach(5, [0, 0, 0]).started,
  readFile: (client) => readFile(client, "/a"),
  writeFile: (client) => writeFile(client, "/a", [Buffer.from("x")]),
  listFiles: (client) => listFiles(client, "/a"),
  statFile: (client) => statFile(client, "/a"),
  makeDirectory: (client) => makeDirectory(client, "/a"),
  moveFile: (client) => moveFile(client, "/a", "/b"),
  removeFile: (client) => removeFile(client, "/a"),
  changeMode: (client) => changeMode(client, "/a", 0o600),
};

for (const [name, call] of Object.entries(calls)) {
  test(`${name} ends with agent_unreachable when the guest is silent`, async () => {
    await using guest = await FakeGuest.ready({ deadlines: short });
    await rejectsWith(call(guest.client), "agent_unreachable", /did not answer within/);
    assert.equal(guest.client.isClosed, false);
  });
}

test("readFile() ends when the guest falls silent in the middle of a file", async () => {
  await using guest = await FakeGuest.ready({ deadlines: short });
  const reading = readFile(guest.client, "/a");
  const id = await guest.acceptStart();
  guest.output(id, 1, 0, "part");
  const content = await reading;
  assert.equal((await content.next()).value?.toString(), "part");
  await rejectsWith(content.next(), "agent_unreachable");
});

test("an operation without output continues as long as the agent answers", async () => {
  await using guest = await FakeGuest.ready({ deadlines: patient });
  const removing = removeFile(guest.client, "/tree", { recursive: true });
  const id = await guest.acceptStart();
  for (let pings = 0; pings < 5; pings++) {
    const ping = await guest.take(frameType.ping);
    guest.send(frameType.ok, ping.id);
  }
  guest.exit(id);
  await removing;
});

test("an operation that finishes before its guest answers a ping has succeeded", async () => {
  await using guest = await FakeGuest.ready({ deadlines: patient });
  const removing = removeFile(guest.client, "/tree", { recursive: true });
  const id = await guest.acceptStart();
  await guest.take(frameType.ping);
  guest.exit(id);
  await removing;
});

test("an operation that makes no progress ends although the agent answers", async () => {
  await using guest = await FakeGuest.ready({ deadlines: { ...patient, stallMs: 20 } });
  const removing = removeFile(guest.client, "/tree", { recursive: true });
  await guest.acceptStart();
  const answer = async (): Promise<void> => {
    for (;;) guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  };
  answer().catch(() => undefined);
  await rejectsWith(removing, "deadline_exceeded", /no progress/);
});

test("writeFile() waits for a slow caller without asking the guest", async () => {
  await using guest = await FakeGuest.ready({ deadlines: { ...patient, quietMs: 10 } });
  const slow = createDeferred<void>();
  const content = async function* (): AsyncGenerator<Uint8Array> {
    await slow.promise;
    yield Buffer.from("late");
  };
  const writing = writeFile(guest.client, "/a", content());
  const id = await guest.acceptStart();
  // Several times the deadline of the guest, in which nothing is expected of it.
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(!guest.received.some(({ type }) => type === frameType.ping));
  slow.resolve();
  await guest.take(frameType.inputEof);
  guest.exit(id);
  await writing;
});

test("an answer after the deadline does not break the connection", async () => {
  await using guest = await FakeGuest.ready({ deadlines: short });
  await rejectsWith(guest.client.ping(), "agent_unreachable");
  const { id } = await guest.take(frameType.ping);
  guest.send(frameType.ok, id);
  const again = guest.client.ping(60_000);
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  await again;
});

test("a call fails when the connection is closed", async () => {
  await using guest = await FakeGuest.ready({ deadlines: short });
  const closed = once(guest.socket, "close");
  guest.socket.destroy();
  await closed;
  await rejectsWith(statFile(guest.client, "/a"), "agent_unreachable");
});

for (const name of ["readFile", "writeFile", "removeFile", "statFile"] as const) {
  test(`a guest that answers after ${name} was given up keeps its connection`, async () => {
    await using guest = await FakeGuest.ready({ deadlines: short });
    await rejectsWith(calls[name]?.(guest.client) ?? Promise.resolve(), "agent_unreachable");
    const late = guest.client.ping(60_000);
    // The guest continues, and handles what has waited for it in order.
    const answer = async (): Promise<void> => {
      for (;;) {
        const { type, id } = await guest.next();
        if (type === frameType.start) guest.send(frameType.started, id, encodeField(1, u32(7)));
        if (type === frameType.ping) guest.send(frameType.ok, id);
      }
    };
    answer().catch(() => undefined);
    await late;
    assert.equal(guest.client.isClosed, false);
  });
}
