/** Commands in guests that stop answering, or that are only idle. The deadlines are short; none is measured. */
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { isSandbox, type ExecEvent, type ExecRequest } from "@forkd/contract";
import { guestDeadlinesOf } from "@forkd/machine";
import { exec, streamExec } from "../../src/operations/exec.ts";
import { fork } from "../../src/operations/fork.ts";
import type { FakeGuest } from "../fakes/guest.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, until } from "../support.ts";
import type { Runtime } from "../../src/runtime.ts";

const short = { ...guestDeadlinesOf(30_000), quietMs: 20, pingMs: 50, killMs: 20 };
/** A guest that answers these pings is alive, however slow the host is. */
const patient = { ...guestDeadlinesOf(30_000), quietMs: 5, pingMs: 60_000, killMs: 20 };

type Command = ExecRequest & { id: string };

async function commandIn(
  t: TestContext,
  guestDeadlines: typeof short,
): Promise<{ runtime: Runtime; guest: FakeGuest; command: Command }> {
  const { runtime, engine } = await forkableRuntime(t, { guestDeadlines });
  engine.script = () => ({ keepsRunning: true });
  const [entry] = await fork(runtime, forkRequest(), context);
  assert.ok(entry && isSandbox(entry));
  const guest = engine.machines[0]?.guest;
  assert.ok(guest);
  const common = { env: {}, stdin_open: false, background: false, stream: false };
  return { runtime, guest, command: { id: entry.id, args: ["sleep", "inf"], ...common } };
}

function pingsOf(guest: FakeGuest): number {
  return guest.heard.filter((name) => name === "ping").length;
}

test("a stream of an idle command lasts as long as its agent answers", async (t) => {
  const { runtime, guest, command } = await commandIn(t, patient);
  const events: ExecEvent["type"][] = [];
  const reading = (async () => {
    for await (const { type } of await streamExec(runtime, command, context)) events.push(type);
  })();
  await until("the agent was asked several times", () => pingsOf(guest) >= 3);
  guest.exitAll();
  await reading;
  assert.deepEqual(events, ["started", "exit"]);
});

test("streams of idle commands share their pings", async (t) => {
  const { runtime, guest, command } = await commandIn(t, { ...patient, quietMs: 200 });
  const count = 50;
  const streams = Array.from({ length: count }, async () => {
    for await (const event of await streamExec(runtime, command, context)) void event;
  });
  await until("the agent was asked", () => pingsOf(guest) >= 1);
  assert.ok(pingsOf(guest) < count, String(pingsOf(guest)));
  guest.exitAll();
  await Promise.all(streams);
});

test("a stream ends with agent_unreachable when its guest falls silent", async (t) => {
  const { runtime, guest, command } = await commandIn(t, short);
  const stream = (await streamExec(runtime, command, context))[Symbol.asyncIterator]();
  assert.equal((await stream.next()).value?.type, "started");
  guest.script.silent = true;
  await rejectsWith(
    stream.next(),
    "agent_unreachable",
    /Cannot follow the command: the guest did not answer/,
  );
});

for (const timeout of [0, 3600]) {
  test(`exec() with a timeout of ${timeout} s ends when its guest falls silent`, async (t) => {
    const { runtime, guest, command } = await commandIn(t, short);
    const running = exec(runtime, { ...command, timeout_secs: timeout }, context);
    running.catch(() => undefined);
    await until("the command runs", () => guest.heard.includes("start"));
    guest.script.silent = true;
    await rejectsWith(running, "agent_unreachable", /the guest did not answer/);
  });
}
