/** What must hold while other things happen to the same sandbox. */
import assert from "node:assert/strict";
import { mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { AppError, isSandbox, type BranchRequest } from "@forkd/contract";
import { removeTree } from "@forkd/base";
import { physicalBytes, snapshotDisks } from "@forkd/store";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { getSandbox, kill, ping } from "../../src/operations/sandboxes.ts";
import { setTimeouts } from "../../src/operations/timeouts.ts";
import { closeSandboxes } from "../../src/sandbox/shutdown.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import type { WarmKernel } from "../../src/launch/warm-kernel.ts";
import { follow } from "../restart.ts";
import {
  assertOnly,
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  type TestRuntime,
} from "../support.ts";

async function forkOne(
  { runtime }: TestRuntime,
  request: Parameters<typeof forkRequest>[0] = {},
): Promise<Sandbox> {
  const [entry] = await fork(runtime, forkRequest(request), context);
  assert.ok(entry && isSandbox(entry));
  return runtime.registry.get(entry.id);
}

function branchRequest(id: string, tag: string): BranchRequest {
  return { id, tag, wait: true, n: 0, vary: [], env: {}, labels: {} };
}

async function recordIn({ home }: Sandbox): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(home.recordPath, "utf8")) as Record<string, unknown>;
}

function gate(): { passed: Promise<void>; open: () => void } {
  let open = () => {};
  const passed = new Promise<void>((resolve) => (open = resolve));
  return { passed, open };
}

const keptFrom = (record: Record<string, unknown>) =>
  (record["machine"] as { number: number } | undefined)?.number;

/** Makes every rename to the name of the record fail. */
async function blockRecord(sandbox: Sandbox): Promise<void> {
  await rm(sandbox.home.recordPath);
  await mkdir(join(sandbox.home.recordPath, "in-the-way"), { recursive: true });
}

test("a machine started by resume or rewind keeps its expiry over a restart of the daemon", async (t) => {
  const first = await forkableRuntime(t);
  const [resumed, rewound] = [
    await forkOne(first, { ttl_secs: 1000 }),
    await forkOne(first, { ttl_secs: 1000 }),
  ];
  await branch(first.runtime, branchRequest(rewound.id, "point"), context);
  await pause(first.runtime, { id: resumed.id }, context);
  await new Promise((resolve) => setTimeout(resolve, 20));
  const told = [
    await resume(first.runtime, { id: resumed.id }, context),
    await rewind(first.runtime, { id: rewound.id, to: "point" }, context),
  ];
  const { runtime } = await follow(t, first);
  for (const { id, expires_at_unix: expires } of told)
    assert.equal(getSandbox(runtime, { id }).expires_at_unix, expires);
});

test("a sandbox runs on its new machine when the old one cannot be cleaned up", async (t) => {
  const fixture = await forkableRuntime(t);
  const sandbox = await forkOne(fixture);
  await branch(fixture.runtime, branchRequest(sandbox.id, "point"), context);
  const [old] = fixture.engine.machines;
  assert.ok(old);
  const dispose = old[Symbol.asyncDispose].bind(old);
  old[Symbol.asyncDispose] = async () => {
    await dispose();
    throw new Error("its group is busy");
  };
  const info = await rewind(fixture.runtime, { id: sandbox.id, to: "point" }, context);
  assert.deepEqual([info.state, sandbox.current.number], ["running", 1]);
  assert.ok((await ping(fixture.runtime, { id: sandbox.id })).ok);
});

test("a record that cannot be written leaves the sandbox as it was and no saved state behind", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime } = fixture;
  const sandbox = await forkOne(fixture);
  await branch(runtime, branchRequest(sandbox.id, "point"), context);
  await blockRecord(sandbox);
  await assert.rejects(pause(runtime, { id: sandbox.id }, context), /EISDIR|directory/);
  await assert.rejects(rewind(runtime, { id: sandbox.id, to: "point" }, context), /EISDIR|directory/);
  assert.deepEqual([sandbox.state, sandbox.saved, sandbox.current.number], ["running", undefined, 0]);
  assert.ok((await ping(runtime, { id: sandbox.id })).ok);
  const names = (await readdir(sandbox.home.dir)).filter((name) => /^(state-|\d|\.draft)/.test(name));
  assert.deepEqual(names, ["0"]);
  await kill(runtime, { id: sandbox.id });
  assert.ok(fixture.engine.machines.every(({ hasEnded }) => hasEnded));
  await assertOnly(fixture, []);
});

test("a daemon that keeps its sandboxes releases no machine that is stopped for a capture", async (t) => {
  const fixture = await forkableRuntime(t);
  const { passed, open } = gate();
  const reached = gate();
  fixture.engine.script = () => ({
    onStep: (step) => {
      if (step !== "take") return;
      reached.open();
      return passed;
    },
  });
  const sandbox = await forkOne(fixture);
  const [machine] = fixture.engine.machines;
  t.after(() => machine?.[Symbol.asyncDispose]());
  const pausing = pause(fixture.runtime, { id: sandbox.id }, context);
  await reached.passed;
  const closing = closeSandboxes(fixture.runtime, { onStop: "keep" });
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([machine?.isPaused, machine?.wasLeft], [true, false]);
  const late = fork(fixture.runtime, forkRequest(), context);
  const { remedy } = await rejectsWith(late, "daemon_stopping", /^The daemon is stopping$/);
  assert.deepEqual(remedy, { action: "retry_later" });
  open();
  await assert.rejects(pausing);
  assert.deepEqual(await closing, { stopped: 0, kept: 1 });
  assert.deepEqual([machine?.isPaused, machine?.wasLeft], [false, true]);
  assert.equal(keptFrom(await recordIn(sandbox)), 0);
});

test("an operation that waits for the lock changes nothing after the sandbox was released", async (t) => {
  const fixture = await forkableRuntime(t, { onStop: "keep" });
  const sandbox = await forkOne(fixture);
  t.after(() => fixture.engine.machines[0]?.[Symbol.asyncDispose]());
  const { passed, open } = gate();
  const busy = sandbox.exclusively(undefined, () => passed);
  const waiting = setTimeouts(fixture.runtime, { id: sandbox.id, ttl_secs: 50 });
  waiting.catch(() => undefined);
  await sandbox.release();
  open();
  await busy;
  const { remedy } = await rejectsWith(waiting, "daemon_stopping", /^The daemon is stopping$/);
  assert.deepEqual(remedy, { action: "retry_later" });
  assert.equal(keptFrom(await recordIn(sandbox)), 0, "its machine is still known");
});

test("pause() does not wait for a kernel that never starts", async (t) => {
  const fixture = await forkableRuntime(t, { readyTimeoutMs: 1000 });
  const sandbox = await forkOne(fixture);
  void sandbox.current.addRestart("python", new Promise(() => undefined));
  const stop = new AbortController();
  const stopped = pause(fixture.runtime, { id: sandbox.id }, { ...context, signal: stop.signal });
  stop.abort(new AppError("cancelled", "The caller has gone"));
  await rejectsWith(stopped, "cancelled", /caller has gone/);
  assert.equal((await pause(fixture.runtime, { id: sandbox.id }, context)).state, "paused");
});

test("kernels keep the order of their snapshot, whichever is recovered first", async (t) => {
  const fixture = await forkableRuntime(t);
  const { current } = await forkOne(fixture);
  const { kernels } = current.base.manifest;
  const record = {
    version: "",
    argv: [],
    process_id: 1,
    offsets: [0, 0, 0] as [number, number, number],
    next_id: 1,
    unanswered: [],
  };
  kernels.push({ ...record, language: "python" }, { ...record, language: "node" });
  t.after(() => void kernels.splice(0));
  void current.addRestart("python", new Promise(() => undefined));
  current.addKernel({ language: "node" } as WarmKernel);
  assert.deepEqual(current.languages, ["python", "node"]);
  current.addKernel({ language: "python" } as WarmKernel);
  assert.deepEqual([...current.kernels.keys()], ["python", "node"]);
  current.kernels.clear();
});

test("snapshot layers that were merged into the machine's own layer do not count as its writes", async (t) => {
  const first = await forkableRuntime(t);
  const sandbox = await forkOne(first, { limits: { disk_mib: 8, best_effort: true } });
  const { base, machine } = sandbox.current;
  const [given = ""] = snapshotDisks(base);
  await machine.collapseDisk(1);
  assert.ok(!machine.disk.some(({ path }) => path === given));
  const second = await follow(t, first);
  const bytes = second.engine.machines.at(-1)?.diskLimits?.growth?.bytes;
  assert.equal(bytes, 8 * 1024 * 1024 + ((await physicalBytes(given)) ?? 0));
});

test("a sandbox can be saved when the runtime directory was emptied", async (t) => {
  const fixture = await forkableRuntime(t);
  const sandbox = await forkOne(fixture);
  await removeTree(join(fixture.config.runtimeDir, sandbox.id));
  assert.equal((await pause(fixture.runtime, { id: sandbox.id }, context)).state, "paused");
  assert.equal((await resume(fixture.runtime, { id: sandbox.id }, context)).state, "running");
});

test("a child that dies before the fork answers is reported with its reason", async (t) => {
  const fixture = await forkableRuntime(t);
  const { passed, open } = gate();
  fixture.engine.script = (nth) => (nth === 1 ? { gate: passed } : {});
  const forking = fork(fixture.runtime, forkRequest({ n: 2 }), context);
  const died = new Promise<void>((resolve) => {
    fixture.runtime.events.onEvent = ({ type }) => {
      if (type === "sandbox.created") fixture.engine.machines[0]?.die("guest: Kernel panic");
      if (type === "sandbox.died") resolve();
    };
  });
  await died;
  fixture.runtime.events.onEvent = undefined;
  open();
  const [dead, alive] = await forking;
  assert.ok(dead && !isSandbox(dead) && alive && isSandbox(alive));
  assert.deepEqual([dead.code, /Kernel panic/.test(dead.error)], ["sandbox_dead", true]);
});
