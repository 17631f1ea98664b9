/** Limits and timeouts of sandboxes, with real machines and one daemon. */
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
// A test that fails must not leave sandboxes to the next tests.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

async function infoOf({ id }: Sandbox): Promise<Sandbox["info"]> {
  return (await daemon.forkd.sandboxes.get(id)).info;
}

/** Content of a file of the machine's control group. */
function groupFile({ id }: Sandbox, controller: string, file: string): string {
  const dir = groupsOf(daemon.dataDir).find((each) => each.includes(`/${controller}/`) && each.includes(id));
  return readFileSync(`${dir}/${file}`, "utf8");
}

test("a sandbox that exceeds its memory limit stops with the reason and affects no other sandbox", async (t) => {
  if (!canGroup) return t.skip("control groups cannot be made here");
  const { forkd } = daemon;
  const [victim, other] = await forkAll(forkd, "python", 2, { limits: { memoryMib: 128 } });
  assert.ok(victim && other);
  assert.deepEqual(victim.info.limits, { memoryMib: 128 });
  const hungry = victim.eval("x = bytearray(300 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1");
  const error = await rejectsWith(
    hungry,
    "sandbox_dead",
    /out of memory: limit 128 MiB \(guest has 512 MiB\)/,
  );
  assert.equal(error.details["reason_code"], "out_of_memory");
  const { state, reason, reasonCode: code } = await infoOf(victim);
  assert.deepEqual(
    [state, reason, code],
    ["dead", "out of memory: limit 128 MiB (guest has 512 MiB)", "out_of_memory"],
  );
  assert.equal((await other.eval("sum(bytearray(b'x' * 1000))")).result, "120000");
  // The daemon reports the stop before it has cleaned up.
  await until("its group is gone", () => groupsOf(daemon.dataDir).every((dir) => !dir.includes(victim.id)));
  await other.kill();
  assert.deepEqual(groupsOf(daemon.dataDir), []);
});

test("a CPU limit throttles its sandbox only, also after a pause", async (t) => {
  if (!canGroup) return t.skip("control groups cannot be made here");
  const { forkd } = daemon;
  await using held = await forkd.create("tiny", { limits: { cpuPercent: 10, pids: 100 } });
  await using free = await forkd.create("tiny", { limits: { pids: 100, cpuPercent: 10_000 } });
  const throttled = (sandbox: Sandbox) =>
    Number(/nr_throttled (\d+)/.exec(groupFile(sandbox, "cpu", "cpu.stat"))?.[1]);
  const busy = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done";
  // On a busy host it may take a while until the limit is what slows the sandbox down.
  const heldBack = async () => {
    await Promise.all([sh(held, busy), sh(free, busy)]);
    return throttled(held) > 0;
  };
  await until("the sandbox with a limit is throttled", heldBack);
  assert.equal(throttled(free), 0);
  assert.equal(groupFile(held, "pids", "pids.max").trim(), "100");
  await held.pause();
  assert.equal(groupsOf(daemon.dataDir).filter((dir) => dir.includes(held.id)).length, 0);
  assert.deepEqual((await held.resume()).limits, { cpuPercent: 10, pids: 100 });
  await until("the resumed sandbox is throttled", heldBack);
});

test("a sandbox whose disk exceeds its limit stops, and writes before a pause count", async () => {
  await using child = await daemon.forkd.create("tiny", { limits: { diskMib: 24 } });
  await sh(child, "dd if=/dev/zero of=/a bs=1M count=8 conv=fsync 2>&1");
  const { children } = await child.branch({ tag: "grown", n: 1 });
  assert.deepEqual(
    children.map((each) => "info" in each && each.info.limits),
    [{ diskMib: 24 }],
    "the child of a branch has the limits of its source",
  );
  // The command runs until the daemon has stopped the sandbox.
  const grow = (file: string, mib: number) => [
    "sh",
    "-c",
    `dd if=/dev/zero of=${file} bs=1M count=${mib} conv=fsync; sleep 500`,
  ];
  const more = child.commands.run(grow("/b", 40), { timeoutMs: 600_000 });
  await rejectsWith(more, "sandbox_dead", /disk limit reached: its disk took more than 24 MiB/);
  assert.equal((await infoOf(child)).reasonCode, "disk_limit");
  const [copy] = children;
  assert.ok(copy && "pause" in copy);
  // Writes before a pause count after it.
  await sh(copy, "dd if=/dev/zero of=/c bs=1M count=12 conv=fsync 2>&1");
  await copy.pause();
  await copy.resume();
  const again = copy.commands.run(grow("/d", 16), { timeoutMs: 600_000 });
  const { remedy } = await rejectsWith(again, "sandbox_paused", /disk limit reached: .*state is kept/);
  assert.equal(remedy?.action, "resume");
  assert.deepEqual(await infoOf(copy).then(({ state, reasonCode: code }) => [state, code]), [
    "paused",
    "disk_limit",
  ]);
  await copy.kill();
  await daemon.forkd.snapshots.remove("grown");
});

test("a write limit slows down the guest's disk", async () => {
  await using child = await daemon.forkd.create("tiny", { limits: { ioWriteBps: 4_000_000 } });
  // Measured by the guest's clock. An unlimited disk takes a hundredth of that, a busy host more.
  const seconds = Number(
    await sh(
      child,
      "s=$(cut -d. -f1 /proc/uptime); dd if=/dev/zero of=/a bs=1M count=12 conv=fsync 2>/dev/null; e=$(cut -d. -f1 /proc/uptime); echo $((e-s))",
    ),
  );
  assert.ok(seconds >= 1, `12 MB at 4 MB a second in ${seconds} s`);
});

test("fork() refuses a limit that the host cannot enforce; with best_effort it reports the limit", async () => {
  await using weak = await startDaemon({ snapshots: ["tiny"], env: { FORKD_JAIL: "off" } });
  const { forkd } = weak;
  const refused = await rejectsWith(
    forkd.create("tiny", { limits: { netBps: 100_000 } }),
    "limit_not_enforceable",
    /limits.net_bps: sandboxes have no network on this host: jail: switched off by the settings/,
  );
  const reason = "sandboxes have no network on this host: jail: switched off by the settings";
  assert.deepEqual(refused.details["limits_not_enforced"], [{ limit: "net_bps", reason }]);
  await using child = await forkd.create("tiny", { limits: { netBps: 100_000, bestEffort: true } });
  assert.deepEqual(child.info.limitsNotEnforced, [{ limit: "net_bps", reason }]);
  assert.deepEqual([child.info.jail, child.info.network?.device], ["none", "none"]);
});

test("fork() beyond the capacity is refused with the numbers and starts no machine", async () => {
  const { forkd } = daemon;
  const memory = await rejectsWith(forkd.fork("python", 6), "capacity_exhausted", /limit is 2600/);
  assert.deepEqual(memory.details, {
    which: "max_memory_mib",
    asked: 3072,
    in_use: 0,
    limit: 2600,
    request_id: memory.details["request_id"],
  });
  const queue = await rejectsWith(forkd.fork("tiny", 10), "capacity_exhausted", /waiting to be started/);
  assert.deepEqual([queue.details["which"], queue.details["retry_after_secs"]], ["max_pending_forks", 1]);
  assert.deepEqual(await forkd.sandboxes.list({ state: "running" }).all(), []);
});

test("an idle sandbox is paused, and a call resumes it", async () => {
  const { forkd } = daemon;
  await using child = await forkd.create("tiny", {
    idleTimeoutMs: 1000,
    onTimeout: "pause",
    autoResume: true,
  });
  const lasting = await child.commands.start(["sh", "-c", "echo kept > /root/note; sleep 1000"]);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  assert.equal((await infoOf(child)).state, "running", "a running call counts as activity");
  await lasting.signal("SIGKILL");
  await lasting.wait();
  const isPaused = async () => (await infoOf(child)).state === "paused";
  await until("it is paused", isPaused);
  assert.equal(await sh(child, "cat /root/note"), "kept");
  await child.setTimeouts({ autoResume: false });
  await until("it is paused again", isPaused);
  await rejectsWith(child.commands.run(["true"]), "sandbox_paused");
  await child.setTimeouts({ idleTimeoutMs: null, ttlMs: 1000, onTimeout: "kill" });
  await child.resume();
  await until("the sandbox is killed at its time to live", async () =>
    (await forkd.sandboxes.list().all()).every(({ id }) => id !== child.id),
  );
});

test("a daemon finds the control groups of a killed daemon", async (t) => {
  if (!canGroup) return t.skip("control groups cannot be made here");
  const first = await startDaemon({ snapshots: ["tiny"] });
  await using _first = first;
  const child = await first.forkd.create("tiny", { limits: { pids: 100 } });
  assert.equal(groupsOf(first.dataDir).length, 1);
  first.process.kill("SIGKILL");
  await once(first.process, "exit");
  await using second = await startDaemon({ dataDir: first.dataDir });
  await second.forkd.call("killAll", {});
  assert.deepEqual(groupsOf(first.dataDir), []);
  await until("the machine has exited", () => !processExists(child.info.pid));
});
