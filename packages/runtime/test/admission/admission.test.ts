import assert from "node:assert/strict";
import { test } from "node:test";
import { isSandbox, type ForkEntry } from "@forkd/contract";
import { Cgroups } from "@forkd/machine";
import { Admission, type Ask } from "../../src/admission/admission.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume } from "../../src/operations/resume.ts";
import { createWorkspace } from "../../src/operations/workspaces.ts";
import { defaultRuntimeConfig, type QuotaSettings } from "../../src/config.ts";
import { assertOnly, context, forkableRuntime, forkRequest, rejectsWith, until } from "../support.ts";

function admission(settings: Partial<QuotaSettings> = {}, maxSandboxes = 10): Admission {
  return new Admission({
    dataDir: "/",
    maxSandboxes,
    settings: { ...defaultRuntimeConfig().quota, memoryReserveMib: 0, diskReserveMib: 0, ...settings },
    cgroups: Cgroups.none("a test"),
    sandboxes: () => [],
  });
}

function ask(some: Partial<Ask> = {}): Ask {
  return { what: "fork", n: 1, memoryMib: 100, expectMib: 1, diskMib: 10, ...some };
}

function refusal(work: () => unknown): Record<string, unknown> {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof Error && "details" in error);
    assert.equal("code" in error && error.code, "capacity_exhausted");
    return error.details as Record<string, unknown>;
  }
  return assert.fail("it was admitted");
}

function remedyOf(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error instanceof Error && "remedy" in error ? error.remedy : undefined;
  }
  return assert.fail("it was admitted");
}

function idsOf(entries: readonly ForkEntry[]): string[] {
  return entries.filter(isSandbox).map(({ id }) => id);
}

test("admit() holds what it reserved until it is given back, place by place or whole", () => {
  const room = admission();
  const first = room.admit(ask({ n: 6 }));
  assert.equal(room.pending, 6);
  assert.deepEqual(
    refusal(() => room.admit(ask({ n: 5 }))),
    {
      which: "max_sandboxes",
      asked: 5,
      in_use: 6,
      limit: 10,
    },
  );
  assert.equal(room.pending, 6, "a refusal reserves nothing");
  first.release();
  using second = room.admit(ask({ n: 5 }));
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  first.release();
  assert.equal(room.pending, 5, "nothing is given back twice");
  second[Symbol.dispose]();
  assert.equal(room.pending, 0);
  room.admit(ask({ n: 0 }));
  assert.equal(room.pending, 0);
});

test("admit() names each bound that is met", () => {
  const bounds: [Partial<QuotaSettings>, Partial<Ask>, Record<string, unknown>][] = [
    [{ maxMemoryMib: 250 }, { n: 3 }, { which: "max_memory_mib", asked: 300, in_use: 0, limit: 250 }],
    [{ maxDiskMib: 25 }, { n: 3 }, { which: "max_disk_mib", asked: 30, in_use: 0, limit: 25 }],
    [
      { maxPendingForks: 2 },
      { n: 3 },
      { which: "max_pending_forks", asked: 3, in_use: 0, limit: 2, retry_after_secs: 1 },
    ],
  ];
  for (const [settings, some, expected] of bounds)
    assert.deepEqual(
      refusal(() => admission(settings).admit(ask(some))),
      expected,
    );
});

test("admit() looks at what the host has: memory and disk, with a reserve and with what is promised", () => {
  const huge = 1 << 30;
  const memory = refusal(() => admission().admit(ask({ expectMib: huge })));
  assert.deepEqual([memory["which"], memory["asked"]], ["host_memory_mib", huge]);
  const reserve = refusal(() => admission({ memoryReserveMib: huge }).admit(ask()));
  assert.equal(reserve["limit"], 0);
  assert.equal(refusal(() => admission({ diskReserveMib: huge }).admit(ask()))["which"], "host_disk_mib");
  const room = admission();
  const free = Number(memory["limit"]);
  using _most = room.admit(ask({ expectMib: Math.floor(free * 0.7) }));
  assert.equal(
    refusal(() => room.admit(ask({ expectMib: Math.floor(free * 0.7) })))["in_use"],
    Math.floor(free * 0.7),
  );
  // A part of the memory is expected of a child that nothing is known about.
  const part = refusal(() =>
    admission({ memoryOvercommit: 4, memoryReserveMib: huge }).admit(
      ask({ expectMib: undefined, memoryMib: 400 }),
    ),
  );
  assert.equal(part["asked"], 124);
});

test("admit() holds each key to its own sum, pending ones included", () => {
  const room = admission({}, 100);
  const caller = { name: "ci", limits: { sandboxes: 3, memoryMib: 250 } };
  using _first = room.admit(ask({ n: 2, caller }));
  assert.deepEqual(
    refusal(() => room.admit(ask({ n: 2, caller, memoryMib: 1 }))),
    {
      which: "key_sandboxes",
      asked: 2,
      in_use: 2,
      limit: 3,
    },
  );
  assert.deepEqual(
    refusal(() => room.admit(ask({ caller }))),
    {
      which: "key_memory_mib",
      asked: 100,
      in_use: 200,
      limit: 250,
    },
  );
  // A resumed sandbox does not count again.
  using _resumed = room.admit(ask({ n: 2, caller, memoryMib: 1, isNew: false }));
  using _other = room.admit(ask({ n: 5, caller: { name: "other", limits: { sandboxes: 5 } } }));
});

test("forks of a key: two at once cannot both have the last place; paused ones count, but not their memory", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime } = fixture;
  const ci = { ...context, caller: { name: "ci", limits: { sandboxes: 3, memoryMib: 2 } } };
  const both = await Promise.allSettled([
    fork(runtime, forkRequest({ n: 2 }), ci),
    fork(runtime, forkRequest({ n: 2 }), ci),
  ]);
  assert.deepEqual(both.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
  await fork(runtime, forkRequest({ n: 2 }), context);
  const [first = "", second = ""] = runtime.registry
    .all()
    .filter(({ facts }) => facts.owner === "ci")
    .map(({ id }) => id);
  await rejectsWith(fork(runtime, forkRequest(), ci), "capacity_exhausted", /"ci" have 2 MiB and may have 2/);
  await pause(runtime, { id: first }, ci);
  const [third = ""] = idsOf(await fork(runtime, forkRequest(), ci));
  await rejectsWith(fork(runtime, forkRequest(), ci), "capacity_exhausted", /has 3 sandboxes and may have 3/);
  await rejectsWith(
    createWorkspace(runtime, { name: "w", snapshot_tag: "py", env: {}, labels: {} }, ci),
    "capacity_exhausted",
    /has 3 sandboxes/,
  );
  await rejectsWith(resume(runtime, { id: first }, ci), "capacity_exhausted", /"ci" have 2 MiB/);
  // A caller without that key may.
  await resume(runtime, { id: first }, context);
  await pause(runtime, { id: first }, context);
  await runtime.registry.remove(third);
  assert.equal((await resume(runtime, { id: first }, ci)).state, "running");
  assert.equal(runtime.admission.pending, 0);
  assert.notEqual(second, "");
});

test("fork() with limits that this host cannot hold starts nothing, unless it need not", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  const limits = { memory_mib: 64, disk_mib: 8, best_effort: false };
  const error = await rejectsWith(
    fork(runtime, forkRequest({ limits }), context),
    "limit_not_enforceable",
    /limits.memory_mib: control groups are not used; limits.disk_mib: the engine fake cannot limit disks/,
  );
  assert.equal((error.details["limits_not_enforced"] as unknown[]).length, 2);
  assert.equal(engine.asked, 0);
  await rejectsWith(
    fork(runtime, forkRequest({ memory_limit_mib: 64 }), context),
    "limit_not_enforceable",
    /limits.memory_mib/,
  );
  const [entry] = await fork(runtime, forkRequest({ limits: { ...limits, best_effort: true } }), context);
  assert.ok(entry && isSandbox(entry));
  assert.deepEqual(entry.limits, { memory_mib: 64, disk_mib: 8 });
  assert.deepEqual(
    entry.limits_not_enforced?.map(({ limit }) => limit),
    ["memory_mib", "disk_mib"],
  );
  // They are facts of the sandbox: a pause does not lose them.
  await pause(runtime, { id: entry.id }, context);
  assert.deepEqual((await resume(runtime, { id: entry.id }, context)).limits, entry.limits);
});

test("limits of the settings apply to forks that ask for none", async (t) => {
  const fixture = await forkableRuntime(t, { quota: { defaultLimits: { memory_mib: 96, cpu_percent: 50 } } });
  const limits = { memory_mib: 64, best_effort: true };
  const [entry] = await fork(fixture.runtime, forkRequest({ limits }), context);
  assert.ok(entry && isSandbox(entry));
  assert.deepEqual(entry.limits, { memory_mib: 64, cpu_percent: 50 });
  await rejectsWith(fork(fixture.runtime, forkRequest(), context), "limit_not_enforceable", /memory_mib/);
});

test("places are given back whatever happens to a fork", async (t) => {
  const fixture = await forkableRuntime(t, { forkParallelism: 2 });
  const { runtime, engine } = fixture;
  const abort = new AbortController();
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  engine.script = (nth) => (nth === 0 ? { failStart: "no" } : { gate });
  const forking = fork(runtime, forkRequest({ n: 4 }), { ...context, signal: abort.signal });
  await until("two are on the way", () => engine.starting === 2);
  assert.equal(runtime.admission.pending, 3);
  abort.abort();
  open();
  await rejectsWith(forking, "cancelled", /cancelled/);
  await assertOnly(fixture, []);
});

test("admit() advises to ask for less if more is asked for than the limit, whatever runs", () => {
  const room = admission();
  assert.deepEqual(
    remedyOf(() => room.admit(ask({ n: 11 }))),
    { action: "ask_for_less", setting: "max_sandboxes" },
  );
  using _some = room.admit(ask({ n: 6 }));
  assert.deepEqual(
    remedyOf(() => room.admit(ask({ n: 5 }))),
    { action: "pause_some", setting: "max_sandboxes" },
  );
  const caller = { name: "ci", scope: "run", limits: { sandboxes: 2 } } as const;
  assert.deepEqual(
    remedyOf(() => room.admit(ask({ n: 3, caller }))),
    { action: "ask_for_less" },
  );
});
