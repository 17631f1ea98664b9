import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { isSandbox, type ForkEntry, type SandboxInfo } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { listSandboxes } from "../../src/operations/sandboxes.ts";
import { sandboxHome } from "../../src/sandbox/paths.ts";
import { RecordFile } from "../../src/sandbox/record-file.ts";
import type { Script } from "../fakes/engine.ts";
import { WriteFaults } from "../races/write-faults.ts";
import {
  addSnapshot,
  assertOnly,
  context,
  facts,
  forkableRuntime,
  forkRequest,
  guestDir,
  openTestRuntime,
  rejectsWith,
  until,
} from "../support.ts";

function idsOf(entries: readonly ForkEntry[]): string[] {
  return entries.filter(isSandbox).map(({ id }) => id);
}

function sandboxesOf(entries: readonly ForkEntry[]): SandboxInfo[] {
  return entries.filter(isSandbox);
}

test("fork() hands out n sandboxes in order, each with its own directories and identity", async (t) => {
  const fixture = await forkableRuntime(t, { forkParallelism: 4 });
  const entries = await fork(fixture.runtime, forkRequest({ n: 5, labels: { job: "a" } }), context);
  const sandboxes = sandboxesOf(entries);
  assert.deepEqual(
    sandboxes.map(({ index, state, labels, from }) => ({ index, state, labels, from })),
    [0, 1, 2, 3, 4].map((index) => ({ index, state: "running", labels: { job: "a" }, from: "start" })),
  );
  await assertOnly(fixture, idsOf(entries));
  const given = fixture.engine.machines.map(({ guest }) => guest.identity);
  assert.deepEqual(given.map((identity) => identity?.hostname).sort(), idsOf(entries).sort());
  for (const part of ["entropy", "machineId"] as const) {
    assert.equal(new Set(given.map((identity) => identity?.[part])).size, 5, `${part} is shared`);
  }
  assert.ok(given.every((identity) => identity?.entropy.length === 128));
});

test("sandboxes are listed in the order of their indexes, call by call", async (t) => {
  const { runtime } = await forkableRuntime(t, { forkParallelism: 16 });
  await fork(runtime, forkRequest({ n: 16 }), context);
  await fork(runtime, forkRequest({ n: 3 }), context);
  const indexes = [...Array(16).keys(), 0, 1, 2];
  assert.deepEqual(
    listSandboxes(runtime, {}).map(({ index }) => index),
    indexes,
  );
});

test("fork() has said HELLO when the guest runs, and the after-fork step is the next word", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  await fork(runtime, forkRequest(), context);
  assert.deepEqual(engine.machines[0]?.guest.heard.slice(0, 2), ["hello", "afterFork"]);
});

test("fork() merges the environment: snapshot, identity, request, variation", async (t) => {
  const { runtime } = await openTestRuntime(t);
  await addSnapshot(runtime.store, "py", facts({ A: "snapshot", B: "snapshot", C: "snapshot" }));
  const request = forkRequest({ n: 2, env: { B: "request", C: "request" }, vary: [{ env: { C: "child" } }] });
  const [first, second] = sandboxesOf(await fork(runtime, request, context));
  const envOf = (info: SandboxInfo | undefined) => runtime.registry.get(info?.id ?? "").env;
  assert.deepEqual(envOf(first), {
    A: "snapshot",
    B: "request",
    C: "child",
    FORKD_SANDBOX_ID: first?.id,
    FORKD_INDEX: "0",
  });
  assert.equal(envOf(second)["C"], "request");
  assert.equal(envOf(second)["FORKD_INDEX"], "1");
});

test("fork() starts at most forkParallelism children at once", async (t) => {
  const { runtime, engine } = await forkableRuntime(t, { forkParallelism: 3 });
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  engine.script = () => ({ gate });
  const forking = fork(runtime, forkRequest({ n: 7 }), context);
  await until("three wait", () => engine.starting === 3);
  open();
  assert.equal(idsOf(await forking).length, 7);
  assert.equal(engine.mostStarting, 3);
});

const faults: { step: string; script: Script; code: string; message: RegExp }[] = [
  { step: "prepare throws", script: { failPrepare: "no VMM" }, code: "internal", message: /no VMM/ },
  { step: "start throws", script: { failStart: "bad state" }, code: "internal", message: /bad state/ },
  {
    step: "the agent never answers",
    script: { silent: true },
    code: "agent_unreachable",
    message: /did not answer within 1000 ms/,
  },
  {
    step: "the after-fork step is refused",
    script: { refuseAfterFork: "cannot reseed" },
    code: "guest_refused",
    message: /cannot reseed/,
  },
  {
    step: "the real agent may not change its machine",
    script: { agentProgram: join(guestDir, "build/forkd-agent") },
    code: "guest_refused",
    message: /Cannot prepare the forked guest/,
  },
];

for (const { step, script, code, message } of faults) {
  test(`fork() undoes a child for which ${step}, and hands out the others`, async (t) => {
    // Only where one of them never answers; the others must have the time that they need.
    const fixture = await forkableRuntime(t, script.silent ? { readyTimeoutMs: 1000 } : {});
    const { runtime, engine } = fixture;
    for (const failing of [0, 1, 2]) {
      engine.script = (nth) => (nth % 3 === failing ? script : {});
      const entries = await fork(runtime, forkRequest({ n: 3 }), context);
      assert.deepEqual(
        entries.map((entry) => ("code" in entry ? "failed" : "sandbox")),
        [0, 1, 2].map((index) => (index === failing ? "failed" : "sandbox")),
      );
      const failure = entries[failing];
      assert.ok(failure && !isSandbox(failure));
      assert.equal(failure.index, failing);
      assert.equal(failure.code, code);
      assert.match(failure.error, message);
      await assertOnly(fixture, idsOf(entries));
      const running = engine.machines.filter(({ disposals }) => disposals === 0);
      assert.equal(running.length, 2);
      for (const id of idsOf(entries)) await runtime.registry.remove(id);
    }
    assert.ok(engine.machines.every(({ disposals }) => disposals === 1));
    await assertOnly(fixture, []);
  });
}

test("fork() names the reason of a machine that dies while it starts", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  engine.script = () => ({ gate: new Promise(() => undefined) });
  const forking = fork(runtime, forkRequest(), context);
  await until("it starts", () => engine.starting === 1);
  engine.machines[0]?.die("killed by the OOM killer");
  const error = await rejectsWith(forking, "engine_failed", /child of "py": killed by the OOM killer/);
  assert.deepEqual(error.details, {
    reason: "killed by the OOM killer",
    log: "last log",
    console: "last console",
    children: 1,
  });
  await assertOnly(fixture, []);
});

test("fork() waits as long as readyTimeoutMs says for a slow agent", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { runtime, engine } = await forkableRuntime(t, { readyTimeoutMs: 60_000 });
  let open = (): void => undefined;
  engine.script = () => ({ gate: new Promise((resolve) => (open = resolve)) });
  const forking = fork(runtime, forkRequest(), context);
  while (engine.starting === 0) await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(50_000);
  open();
  assert.equal(idsOf(await forking).length, 1);
});

test("fork() throws the first failure when every child fails", async (t) => {
  const fixture = await forkableRuntime(t);
  fixture.engine.script = (nth) => ({ failPrepare: `failure ${nth}` });
  const error = await rejectsWith(
    fork(fixture.runtime, forkRequest({ n: 3 }), context),
    "internal",
    /failure 0/,
  );
  assert.equal(error.details["children"], 3);
  await assertOnly(fixture, []);
});

test("fork() gives everything back when the caller goes away in the middle", async (t) => {
  for (const when of ["before", "during prepare", "during start"] as const) {
    const fixture = await forkableRuntime(t, { forkParallelism: 2 });
    const { runtime, engine } = fixture;
    const controller = new AbortController();
    if (when === "before") controller.abort();
    engine.script = (nth) => {
      if (nth === 2 && when === "during prepare") controller.abort();
      if (nth !== 2 || when !== "during start") return {};
      return { gate: Promise.resolve().then(() => controller.abort()) };
    };
    const forking = fork(runtime, forkRequest({ n: 6 }), { ...context, signal: controller.signal });
    await rejectsWith(forking, "cancelled", /children were removed/);
    assert.deepEqual(runtime.registry.all(), []);
    assert.ok(engine.machines.every(({ disposals }) => disposals === 1));
    assert.ok(engine.asked < 6, `no more children were begun (${when}: ${engine.asked})`);
    await assertOnly(fixture, []);
  }
});

test("fork() counts live sandboxes and those being forked against the limit", async (t) => {
  const fixture = await forkableRuntime(t, { maxSandboxes: 3 });
  const { runtime, engine } = fixture;
  const both = await Promise.allSettled([
    fork(runtime, forkRequest({ n: 2 }), context),
    fork(runtime, forkRequest({ n: 2 }), context),
  ]);
  assert.deepEqual(both.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
  const error = await rejectsWith(
    fork(runtime, forkRequest({ n: 2 }), context),
    "capacity_exhausted",
    /Cannot fork 2: 2 sandboxes are live and the limit is 3/,
  );
  assert.deepEqual(error.details, { which: "max_sandboxes", asked: 2, in_use: 2, limit: 3 });
  assert.equal(engine.asked, 2);
  engine.machines[0]?.die("gone");
  await until("the dead one does not count", () => runtime.registry.live === 1);
  assert.equal(idsOf(await fork(runtime, forkRequest({ n: 2 }), context)).length, 2);
});

test("fork() frees the places of children that failed", async (t) => {
  const { runtime, engine } = await forkableRuntime(t, { maxSandboxes: 2 });
  engine.script = (nth) => (nth < 2 ? { failStart: "no" } : {});
  await assert.rejects(fork(runtime, forkRequest({ n: 2 }), context));
  assert.equal(idsOf(await fork(runtime, forkRequest({ n: 2 }), context)).length, 2);
});

test("fork() starts nothing from a snapshot that is missing, incompatible or damaged", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  const forking = (tag: string) => fork(runtime, forkRequest({ snapshot_tag: tag }), context);
  await rejectsWith(forking("none"), "snapshot_not_found", /"none"/);
  await addSnapshot(runtime.store, "old", { ...facts(), agent_protocol: 0 });
  await rejectsWith(forking("old"), "snapshot_incompatible", /agent protocol: snapshot has 0/);
  await writeFile(join(runtime.store.root, "py", "devices"), "DEVICES");
  await rejectsWith(forking("py"), "snapshot_corrupt", /"devices" differs/);
  assert.equal(engine.asked, 0);
  assert.equal(runtime.admission.pending, 0);
});

test("fork() announces a child when its record is committed and the registry has it", async (t) => {
  const { runtime, config } = await forkableRuntime(t, { forkParallelism: 2 });
  const created: string[] = [];
  runtime.events.onEvent = ({ type, sandbox_id: id = "" }) => {
    if (type !== "sandbox.created") return;
    assert.ok(existsSync(sandboxHome(config, id).recordPath), "it was announced before its record was there");
    assert.ok(runtime.registry.find(id), "it was announced before it could be used");
    created.push(id);
  };
  const entries = await fork(runtime, forkRequest({ n: 3 }), context);
  assert.deepEqual(created.sort(), idsOf(entries).sort());
});

test("fork() undoes only the child whose record cannot be committed, and does not announce it", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine, config } = fixture;
  const faults = await WriteFaults.install(t, config.dataDir);
  let commits = 0;
  for (let nth = 1, hasFailed = true; hasFailed; nth++) {
    const created: string[] = [];
    runtime.events.onEvent = ({ type, sandbox_id: id = "" }) => {
      if (type === "sandbox.created") created.push(id);
    };
    faults.failAt(nth, "EIO");
    const entries = await fork(runtime, forkRequest({ n: 2 }), context);
    hasFailed = faults.stop();
    assert.deepEqual(created, idsOf(entries), faults.last);
    assert.equal(idsOf(entries).length, hasFailed ? 1 : 2, faults.last);
    if (/^rename .*sandbox\.json$/.test(faults.last)) {
      commits++;
      const failed = entries.find((entry) => !isSandbox(entry));
      assert.ok(failed && !isSandbox(failed));
      assert.match(failed.error, /EIO: rename/);
    }
    assert.equal(engine.machines.filter(({ hasEnded }) => !hasEnded).length, idsOf(entries).length);
    await assertOnly(fixture, idsOf(entries));
    for (const id of idsOf(entries)) await runtime.registry.remove(id);
  }
  assert.equal(commits, 2, "the commit of each child failed once");
});

test("fork() gives an error for a child whose machine ends before its record is committed", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  const created: string[] = [];
  runtime.events.onEvent = ({ type }) => void created.push(type);
  const add = runtime.registry.add.bind(runtime.registry);
  t.mock.method(runtime.registry, "add", (sandbox: Parameters<typeof add>[0]) => {
    assert.equal(sandbox.state, "running", "a dead sandbox was registered");
    add(sandbox);
  });
  t.mock.method(RecordFile.prototype, "commit", async () => {
    engine.machines[0]?.die("gone too early");
    await until("its end is known", () => engine.machines[0]?.hasEnded === true);
    await new Promise((resolve) => setTimeout(resolve, 50));
  });
  await rejectsWith(fork(runtime, forkRequest(), context), "sandbox_dead", /gone too early/);
  assert.deepEqual(created, []);
  await assertOnly(fixture, []);
});
