import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import { isSandbox } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { getSandbox, kill, killAll, listSandboxes, ping } from "../../src/operations/sandboxes.ts";
import { setTimeouts } from "../../src/operations/timeouts.ts";
import type { RuntimeConfig } from "../../src/config.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import type { FakeMachine } from "../fakes/engine.ts";
import {
  addSnapshot,
  assertOnly,
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  until,
  type TestRuntime,
} from "../support.ts";

type Running = TestRuntime & { sandbox: Sandbox; machine: FakeMachine };

async function runningSandbox(t: TestContext, settings: Partial<RuntimeConfig> = {}): Promise<Running> {
  const fixture = await forkableRuntime(t, settings);
  const [entry] = await fork(fixture.runtime, forkRequest(), context);
  const [machine] = fixture.engine.machines;
  assert.ok(entry && isSandbox(entry) && machine);
  return { ...fixture, sandbox: fixture.runtime.registry.get(entry.id), machine };
}

/** The timer that waits for the reason does not keep the process alive; polling does. */
async function deathOf(sandbox: Sandbox): Promise<string> {
  await until("the sandbox is dead", () => sandbox.isDead);
  return sandbox.died;
}

// Most of them wait for time to pass, so they run concurrently.
describe("sandboxes", { concurrency: true }, () => {
  test("Registry keeps a dead sandbox with its reason and removes everything else once", async (t) => {
    const fixture = await runningSandbox(t);
    const { runtime, sandbox, machine } = fixture;
    assert.equal(sandbox.info().pid, machine.process.pid);
    machine.die("guest: Kernel panic");
    assert.equal(await deathOf(sandbox), "guest: Kernel panic");
    await until("its resources are released", () => machine.disposals > 0 && runtime.places.size === 0);
    const info = getSandbox(runtime, { id: sandbox.id });
    assert.equal(info.state, "dead");
    assert.equal(info.reason, "guest: Kernel panic");
    assert.equal("pid" in info, false);
    assert.equal(runtime.registry.live, 0);
    await assertOnly(fixture, []);
    const refusal = await rejectsWith(ping(runtime, { id: sandbox.id }), "sandbox_dead", /Kernel panic/);
    assert.equal(refusal.details["console"], "last console");
    await kill(runtime, { id: sandbox.id });
    const { remedy } = await rejectsWith(
      kill(runtime, { id: sandbox.id }),
      "sandbox_not_found",
      /^Cannot find sandbox "sb-\w+"$/,
    );
    assert.deepEqual(remedy, { action: "list_sandboxes" });
    assert.equal(machine.disposals, 1);
  });

  test("a sandbox is dead when its guest closes the port", async (t) => {
    const { sandbox, machine, runtime } = await runningSandbox(t);
    machine.guest.socket.end();
    assert.equal(await deathOf(sandbox), "agent: the guest closed its port");
    await until("its resources are released", () => runtime.places.size === 0);
    assert.equal(machine.disposals, 1);
  });

  test("a sandbox is dead when its guest breaks the protocol", async (t) => {
    const { sandbox, machine } = await runningSandbox(t);
    machine.guest.socket.write("this is not a frame of the protocol");
    assert.match(await deathOf(sandbox), /^agent: Guest broke the agent protocol/);
    await until("the machine is ended", () => machine.disposals === 1);
  });

  test("a sandbox is dead with the exit of its machine when the port closes a moment before it", async (t) => {
    const { sandbox, machine } = await runningSandbox(t);
    machine.guest.socket.destroy();
    setTimeout(() => machine.die("VMM killed by SIGKILL"), 50);
    assert.equal(await deathOf(sandbox), "VMM killed by SIGKILL");
  });

  test("kill() removes everything of the sandbox", async (t) => {
    const fixture = await runningSandbox(t);
    await assertOnly(fixture, [fixture.sandbox.id]);
    await kill(fixture.runtime, { id: fixture.sandbox.id });
    assert.deepEqual(fixture.runtime.registry.all(), []);
    assert.equal(fixture.machine.disposals, 1);
    await assertOnly(fixture, []);
  });

  test("kill() ends one sandbox once when two callers ask at the same time", async (t) => {
    const { runtime, sandbox, machine } = await runningSandbox(t);
    const both = await Promise.allSettled([
      kill(runtime, { id: sandbox.id }),
      kill(runtime, { id: sandbox.id }),
    ]);
    assert.deepEqual(
      both.map(({ status }) => status),
      ["fulfilled", "rejected"],
    );
    assert.equal(machine.disposals, 1);
  });

  test("Registry removes a sandbox when its time to live is over", async (t) => {
    const fixture = await forkableRuntime(t);
    const [entry] = await fork(fixture.runtime, forkRequest({ ttl_secs: 0.1 }), context);
    assert.ok(entry && isSandbox(entry));
    assert.ok(Math.abs((entry.expires_at_unix ?? 0) - Date.now() / 1000) < 60);
    await until("it is gone", () => fixture.runtime.registry.find(entry.id) === undefined);
    await until("it is released", () => fixture.runtime.places.size === 0);
    await assertOnly(fixture, []);
  });

  test("setTimeouts() changes the expiry, and null removes it", async (t) => {
    const { runtime, sandbox } = await runningSandbox(t);
    await setTimeouts(runtime, { id: sandbox.id, ttl_secs: 2 });
    const info = await setTimeouts(runtime, { id: sandbox.id, ttl_secs: null });
    assert.equal("expires_at_unix" in info, false);
    await new Promise((resolve) => setTimeout(resolve, 2200));
    assert.equal(getSandbox(runtime, { id: sandbox.id }).state, "running");
    await setTimeouts(runtime, { id: sandbox.id, ttl_secs: 1000 });
    await setTimeouts(runtime, { id: sandbox.id, ttl_secs: 0.05 });
    await until("it is gone", () => runtime.registry.find(sandbox.id) === undefined);
  });

  test("Registry forgets the oldest dead sandboxes beyond 200, and their timers", async (t) => {
    const { runtime, engine } = await forkableRuntime(t, { forkParallelism: 8 });
    const entries = await fork(runtime, forkRequest({ n: 201 }), context);
    const first = runtime.registry.all()[0];
    assert.ok(first && entries.every(isSandbox));
    const machineOf = new Map(engine.machines.map((machine) => [machine.process.pid, machine]));
    // A timer that fires for a sandbox that is no longer listed must do no harm.
    await setTimeouts(runtime, { id: first.id, ttl_secs: 3 });
    const fires = new Promise((resolve) => setTimeout(resolve, 3200));
    machineOf.get(first.machine.process.pid)?.die("first");
    await deathOf(first);
    await rejectsWith(setTimeouts(runtime, { id: first.id, ttl_secs: 1 }), "sandbox_dead", /first/);
    for (const machine of engine.machines) machine.die("later");
    await until("the first is forgotten", () => runtime.registry.find(first.id) === undefined);
    assert.equal(runtime.registry.all().length, 200);
    await fires;
    await until("all is released", () => runtime.places.size === 0);
  });

  test("killAll() kills the sandboxes that match the filter", async (t) => {
    const fixture = await forkableRuntime(t);
    const { runtime } = fixture;
    await addSnapshot(runtime.store, "other");
    const forked = async (tag: string, labels: Record<string, string>): Promise<string> => {
      const [entry] = await fork(runtime, forkRequest({ snapshot_tag: tag, labels }), context);
      assert.ok(entry && isSandbox(entry));
      return entry.id;
    };
    const [a, b, c, d] = [
      await forked("py", { job: "1" }),
      await forked("py", { job: "2" }),
      await forked("other", { job: "" }),
      await forked("other", {}),
    ];
    assert.deepEqual(
      listSandboxes(runtime, { label: ["job"] }).map(({ id }) => id),
      [a, b, c],
    );
    assert.deepEqual(listSandboxes(runtime, { label: ["toString"] }), []);
    assert.deepEqual(await killAll(runtime, { label: ["job=2"] }), { killed: [b] });
    assert.deepEqual(await killAll(runtime, { label: ["job="] }), { killed: [c] });
    assert.deepEqual(await killAll(runtime, { tag: "py" }), { killed: [a] });
    await assertOnly(fixture, [d]);
    assert.deepEqual(await killAll(runtime, { tag: "py" }), { killed: [] });
    assert.deepEqual(await killAll(runtime, {}), { killed: [d] });
    await assertOnly(fixture, []);
  });

  test("Runtime ends every sandbox when it is disposed", async (t) => {
    const fixture = await forkableRuntime(t, { poolMemoryPercent: 10 });
    await fork(fixture.runtime, forkRequest({ n: 3 }), context);
    await until("the pool is full", () => fixture.runtime.pool.counts()["py"] === 3);
    await fixture.runtime[Symbol.asyncDispose]();
    assert.ok(fixture.engine.machines.every(({ disposals }) => disposals === 1));
    await assertOnly(fixture, []);
  });
});
