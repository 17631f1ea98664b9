import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { isSandbox } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { expire, retrySecs, setTimeouts } from "../../src/operations/timeouts.ts";
import { enterSandbox } from "../../src/sandbox/into-guest.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import {
  assertOnly,
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  until,
  type TestRuntime,
} from "../support.ts";

async function sandboxWith(
  t: TestContext,
  request: Parameters<typeof forkRequest>[0],
): Promise<TestRuntime & { sandbox: Sandbox }> {
  const fixture = await forkableRuntime(t);
  const [entry] = await fork(fixture.runtime, forkRequest(request), context);
  assert.ok(entry && isSandbox(entry));
  return { ...fixture, sandbox: fixture.runtime.registry.get(entry.id) };
}

test("a sandbox without calls is killed after its idle timeout; an open call postpones that", async (t) => {
  // The timers of the runtime do not keep the process alive; the polling of until() does.
  const fixture = await sandboxWith(t, { idle_timeout_secs: 1000 });
  const { runtime, sandbox } = fixture;
  const call = await enterSandbox(runtime, { ...context, id: sandbox.id });
  await setTimeouts(runtime, { id: sandbox.id, idle_timeout_secs: 1 });
  assert.deepEqual([sandbox.info().idle_timeout_secs, sandbox.info().on_timeout], [1, "kill"]);
  assert.ok(runtime.activity.isActive(sandbox));
  await new Promise((resolve) => setTimeout(resolve, 1200));
  assert.equal(sandbox.state, "running", "it was killed during a call");
  const events = runtime.events.listen({ type: ["sandbox.expired"] })[Symbol.asyncIterator]();
  call[Symbol.dispose]();
  call[Symbol.dispose]();
  assert.equal(runtime.activity.isActive(sandbox), false);
  await until("nothing of it is left", () => !runtime.places.has(sandbox.id));
  const { value: told } = await events.next();
  assert.match(told?.reason ?? "", /left alone/);
  await assertOnly(fixture, []);
});

test("a sandbox is paused when its time is over, and a call resumes it", async (t) => {
  const { runtime, sandbox } = await sandboxWith(t, {
    ttl_secs: 1,
    on_timeout: "pause",
    auto_resume: true,
  });
  await until("it is paused", () => sandbox.state === "paused");
  await setTimeouts(runtime, { id: sandbox.id, ttl_secs: 1000 });
  const calls = await Promise.all([1, 2, 3].map(() => enterSandbox(runtime, { ...context, id: sandbox.id })));
  assert.equal(sandbox.state, "running");
  assert.equal(sandbox.current.number, 1, "three concurrent calls resume it once");
  for (const call of calls) call[Symbol.dispose]();
});

test("a call that comes while the sandbox is being paused waits and resumes it", async (t) => {
  const { runtime, sandbox, engine } = await sandboxWith(t, { auto_resume: true });
  const [machine] = engine.machines;
  const pausing = pause(runtime, { id: sandbox.id }, context);
  await until("it is about to be paused", () => sandbox.needsResume && sandbox.state === "running");
  using _call = await enterSandbox(runtime, { ...context, id: sandbox.id });
  assert.equal((await pausing).state, "paused");
  assert.equal(sandbox.needsResume, false);
  assert.notEqual(sandbox.machine, machine);
});

test("an idle sandbox is not paused if a call comes while the pause waits for the lock", async (t) => {
  const { runtime, sandbox } = await sandboxWith(t, { on_timeout: "pause" });
  let free = (): void => undefined;
  const busy = sandbox.exclusively(undefined, () => new Promise<void>((resolve) => (free = resolve)));
  const expiring = expire(runtime, sandbox, "idle");
  using _call = await enterSandbox(runtime, { ...context, id: sandbox.id });
  free();
  await Promise.all([busy, expiring]);
  assert.equal(sandbox.state, "running");
});

test("a call into a paused sandbox without auto-resume is refused", async (t) => {
  const { runtime, sandbox } = await sandboxWith(t, {});
  await pause(runtime, { id: sandbox.id }, context);
  using _call = await enterSandbox(runtime, { ...context, id: sandbox.id });
  assert.throws(() => sandbox.agent, { code: "sandbox_paused" });
  await rejectsWith(enterSandbox(runtime, { ...context, id: "sb-none" }), "sandbox_not_found", /sb-none/);
});

test("setTimeouts() changes the given fields, also of a paused sandbox, and writes them to the record", async (t) => {
  const { runtime, sandbox } = await sandboxWith(t, { ttl_secs: 1000, idle_timeout_secs: 500 });
  const changed = await setTimeouts(runtime, { id: sandbox.id, on_timeout: "pause" });
  assert.deepEqual([changed.on_timeout, changed.idle_timeout_secs], ["pause", 500]);
  assert.ok(changed.expires_at_unix);
  await pause(runtime, { id: sandbox.id }, context);
  const info = await setTimeouts(runtime, {
    id: sandbox.id,
    ttl_secs: null,
    idle_timeout_secs: 7,
    auto_resume: true,
  });
  assert.deepEqual([info.expires_at_unix, info.idle_timeout_secs, info.auto_resume], [undefined, 7, true]);
  const record = JSON.parse(await readFile(sandbox.home.recordPath, "utf8")) as Record<string, unknown>;
  assert.deepEqual(
    [record["ttl_secs"], record["idle_timeout_secs"], record["on_timeout"], record["auto_resume"]],
    [undefined, 7, "pause", true],
  );
});

test("a sandbox that cannot be paused says so, waits longer each time, and forgets it when it is paused", async (t) => {
  const { runtime, sandbox, engine } = await sandboxWith(t, { idle_timeout_secs: 600, on_timeout: "pause" });
  const machine = engine.machines[0];
  assert.ok(machine);
  const works = machine.pause.bind(machine);
  machine.pause = () => Promise.reject(new Error("no room"));
  await expire(runtime, sandbox, "idle");
  assert.deepEqual([sandbox.state, sandbox.info().reason], ["running", "it could not be paused: no room"]);
  assert.deepEqual([1, 2, 3, 7, 100].map(retrySecs), [60, 120, 240, 3600, 3600]);
  machine.pause = works;
  await expire(runtime, sandbox, "idle");
  assert.deepEqual([sandbox.state, sandbox.info().reason], ["paused", undefined]);
});
