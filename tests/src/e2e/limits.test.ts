/** What a sandbox may take and how long it may be left alone, with real machines and one daemon. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { after, afterEach, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { groupsOf } from "../support/groups.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { forkAll, processExists, sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
let canGroup: boolean;
before(async () => {
  daemon = await startDaemon({
    snapshots: ["python", "tiny"],
    env: { FORKD_MAX_MEMORY_MIB: "2600", FORKD_MAX_PENDING_FORKS: "9" },
  });
  const { checks } = await daemon.forkd.doctor();
  canGroup = checks.some(({ name, outcome }) => name === "limits" && outcome === "ok");
});
// A test that failed half-way is no reason for the next ones to fail.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

async function infoOf({ id }: Sandbox): Promise<Sandbox["info"]> {
  return (await daemon.forkd.sandboxes.get(id)).info;
}

/** A file of the group that the machine is in. */
function groupFile({ id }: Sandbox, controller: string, file: string): string {
  const dir = groupsOf(daemon.dataDir).find((each) => each.includes(`/${controller}/`) && each.includes(id));
  return readFileSync(`${dir}/${file}`, "utf8");
}

test("a child that takes more memory than its limit dies, says why, and hurts no other", async (t) => {
  if (!canGroup) return t.skip("control groups cannot be made here");
  const { forkd } = daemon;
  const [victim, other] = await forkAll(forkd, "python", 2, { limits: { memory_mib: 128 } });
  assert.ok(victim && other);
  assert.deepEqual(victim.info.limits, { memory_mib: 128 });
  const hungry = victim.eval("x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1");
  const error = await rejectsWith(
    hungry,
    "sandbox_dead",
    /out of memory: limit 128 MiB \(guest has 512 MiB\)/,
  );
  assert.equal(error.details["reason_code"], "out_of_memory");
  const { state, reason, reason_code: code } = await infoOf(victim);
  assert.deepEqual(
    [state, reason, code],
    ["dead", "out of memory: limit 128 MiB (guest has 512 MiB)", "out_of_memory"],
  );
  assert.equal((await other.eval("sum(bytearray(b'x' * 1000))")).result, "120000");
  // Its death is told before all of it is cleared away.
  await until("its group is gone", () => groupsOf(daemon.dataDir).every((dir) => !dir.includes(victim.id)));
  await other.kill();
  assert.deepEqual(groupsOf(daemon.dataDir), []);
});

test("of two busy children the one with a limit is held back, also after a pause, and the other is not", async (t) => {
  if (!canGroup) return t.skip("control groups cannot be made here");
  const { forkd } = daemon;
  await using held = await forkd.forkOne("tiny", { limits: { cpu_percent: 10, pids: 100 } });
  await using free = await forkd.forkOne("tiny", { limits: { pids: 100, cpu_percent: 10_000 } });
  const throttled = (sandbox: Sandbox) =>
    Number(/nr_throttled (\d+)/.exec(groupFile(sandbox, "cpu", "cpu.stat"))?.[1]);
  const busy = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done";
  // On a host where others take all the time there is, it may take a while until it is the limit that holds it back.
  const heldBack = async () => {
    await Promise.all([sh(held, busy), sh(free, busy)]);
    return throttled(held) > 0;
  };
  await until("the one with a limit is held back", heldBack);
  assert.equal(throttled(free), 0);
  assert.equal(groupFile(held, "pids", "pids.max").trim(), "100");
  await held.pause();
  assert.equal(groupsOf(daemon.dataDir).filter((dir) => dir.includes(held.id)).length, 0);
  assert.deepEqual((await held.resume()).limits, { cpu_percent: 10, pids: 100 });
  await until("the limit came back with it", heldBack);
});

test("a disk that grows beyond its limit ends its sandbox; what stays below it does not", async () => {
  await using child = await daemon.forkd.forkOne("tiny", { limits: { disk_mib: 24 } });
  await sh(child, "dd if=/dev/zero of=/a bs=1M count=8 conv=fsync 2>&1");
  const { children } = await child.branch({ tag: "grown", n: 1 });
  assert.deepEqual(
    children.map((each) => "info" in each && each.info.limits),
    [{ disk_mib: 24 }],
    "the child of a branch has the limits of its source",
  );
  // The guest goes on until the event has come.
  const grow = (file: string, mib: number) => [
    "sh",
    "-c",
    `dd if=/dev/zero of=${file} bs=1M count=${mib} conv=fsync; sleep 500`,
  ];
  const more = child.commands.run(grow("/b", 40), { timeoutSecs: 600 });
  await rejectsWith(more, "sandbox_dead", /disk limit reached: its disk took more than 24 MiB/);
  assert.equal((await infoOf(child)).reason_code, "disk_limit");
  const [copy] = children;
  assert.ok(copy && "pause" in copy);
  // What was written before a pause counts after it.
  await sh(copy, "dd if=/dev/zero of=/c bs=1M count=12 conv=fsync 2>&1");
  await copy.pause();
  await copy.resume();
  const again = copy.commands.run(grow("/d", 16), { timeoutSecs: 600 });
  const { remedy } = await rejectsWith(again, "sandbox_paused", /disk limit reached: .*state is kept/);
  assert.equal(remedy?.action, "resume");
  assert.deepEqual(await infoOf(copy).then(({ state, reason_code: code }) => [state, code]), [
    "paused",
    "disk_limit",
  ]);
  await copy.kill();
  await daemon.forkd.snapshots.remove("grown");
});

test("the guest's disk is no faster than its limit", async () => {
  await using child = await daemon.forkd.forkOne("tiny", { limits: { io_write_bps: 4_000_000 } });
  // By the guest's own clock: an unlimited disk takes a hundredth of that, and a busy host makes it only slower.
  const seconds = Number(
    await sh(
      child,
      "s=$(cut -d. -f1 /proc/uptime); dd if=/dev/zero of=/a bs=1M count=12 conv=fsync 2>/dev/null; e=$(cut -d. -f1 /proc/uptime); echo $((e-s))",
    ),
  );
  assert.ok(seconds >= 1, `12 MB at 4 MB a second in ${seconds} s`);
});

test("a limit that cannot be held is refused, or told", async () => {
  const { forkd } = daemon;
  const refused = await rejectsWith(
    forkd.forkOne("tiny", { limits: { net_bps: 100_000 } }),
    "limit_not_enforceable",
    /limits.net_bps: sandboxes have no network device/,
  );
  assert.deepEqual(refused.details["limits_not_enforced"], [
    { limit: "net_bps", reason: "sandboxes have no network device, so there is nothing to limit" },
  ]);
  await using child = await forkd.forkOne("tiny", { limits: { net_bps: 100_000, best_effort: true } });
  assert.deepEqual(
    child.info.limits_not_enforced?.map(({ limit }) => limit),
    ["net_bps"],
  );
});

test("what there is no room for is refused with the numbers, and nothing is begun", async () => {
  const { forkd } = daemon;
  const memory = await rejectsWith(forkd.fork("python", { n: 6 }), "capacity_exhausted", /limit is 2600/);
  assert.deepEqual(memory.details, {
    which: "max_memory_mib",
    asked: 3072,
    in_use: 0,
    limit: 2600,
    request_id: memory.details["request_id"],
  });
  const queue = await rejectsWith(
    forkd.fork("tiny", { n: 10 }),
    "capacity_exhausted",
    /waiting to be started/,
  );
  assert.deepEqual([queue.details["which"], queue.details["retry_after_secs"]], ["max_pending_forks", 1]);
  assert.deepEqual(await forkd.sandboxes.list({ state: "running" }), []);
});

test("a sandbox that is left alone is paused, and a call wakes it", async () => {
  const { forkd } = daemon;
  await using child = await forkd.forkOne("tiny", {
    idleTimeoutSecs: 1,
    onTimeout: "pause",
    autoResume: true,
  });
  const lasting = await child.commands.start(["sh", "-c", "echo kept > /root/note; sleep 1000"]);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  assert.equal((await infoOf(child)).state, "running", "a call that lasts is activity");
  await lasting.signal("SIGKILL");
  await lasting.wait();
  const isPaused = async () => (await infoOf(child)).state === "paused";
  await until("it is paused", isPaused);
  assert.equal(await sh(child, "cat /root/note"), "kept");
  await child.setTimeouts({ autoResume: false });
  await until("it is paused again", isPaused);
  await rejectsWith(child.commands.run(["true"]), "sandbox_paused");
  await child.setTimeouts({ idleTimeoutSecs: null, ttlSecs: 1, onTimeout: "kill" });
  await child.resume();
  await until("its time to live ends it", async () =>
    (await forkd.sandboxes.list()).every(({ id }) => id !== child.id),
  );
});

test("groups of a daemon that was killed are found by the next one", async (t) => {
  if (!canGroup) return t.skip("control groups cannot be made here");
  const first = await startDaemon({ snapshots: ["tiny"] });
  await using _first = first;
  const child = await first.forkd.forkOne("tiny", { limits: { pids: 100 } });
  assert.equal(groupsOf(first.dataDir).length, 1);
  first.process.kill("SIGKILL");
  await once(first.process, "exit");
  await using second = await startDaemon({ dataDir: first.dataDir });
  await second.forkd.call("killAll", {});
  assert.deepEqual(groupsOf(first.dataDir), []);
  await until("its machine has ended", () => !processExists(child.info.pid));
});
