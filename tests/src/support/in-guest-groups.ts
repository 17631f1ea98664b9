/**
 * Runs inside a guest, whose kernel has control groups of version 2, and checks the daemon's code for groups
 * and the effect of the limits. The guest's warm interpreter acts as the daemon, because starting Node takes
 * long there: it enters a group as if a service manager had started it, and a new `Cgroups` object acts as
 * the next daemon.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Cgroups, endProcess, groupNameOf } from "@forkd/machine";

const top = "/sys/fs/cgroup";
const dataDir = "/data of a test";
const ours = groupNameOf(dataDir);
const all = ["memory", "cpu", "pids"] as const;
const limits = { memoryMib: 8, cpuPercent: 200, pids: 8 };

/** Allocates a buffer of 24 MiB and writes to it. */
const hog = "exec dd if=/dev/zero of=/dev/null bs=24M count=1";

const read = (...path: string[]) => readFileSync(join(...path), "utf8");
const words = (...path: string[]) => read(...path).split(/\s+/);
const count = (name: string, ...path: string[]) =>
  Number(new RegExp(`^${name} (\\d+)$`, "m").exec(read(...path))?.[1]);
const ownGroup = () => top + (/^0::(.*)$/m.exec(read("/proc/self/cgroup"))?.[1] ?? "");

/** A process that waits for a line before it runs the script, as a machine waits for its state. */
function waiting(script: string) {
  const child = spawn("sh", ["-c", `read _; ${script}`], { stdio: ["pipe", "ignore", "ignore"] });
  const { pid, stdin } = child;
  assert.ok(pid);
  return { pid, go: () => stdin.end("go\n"), ended: once(child, "exit") };
}

async function until(what: string, holds: () => boolean): Promise<void> {
  for (const end = Date.now() + 30_000; !holds();) {
    if (Date.now() > end) throw new Error(`Not true within 30 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Asserts that all controllers work below that group and that it has no processes. */
function assertDelegated(cgroups: Cgroups, dir: string): void {
  const place = { version: 2, dir: join(dir, ours) };
  assert.deepEqual(cgroups.support, { memory: place, cpu: place, pids: place });
  for (const each of [dir, place.dir]) {
    assert.equal(read(each, "cgroup.procs"), "", `${each} has no processes`);
    const enabled = words(each, "cgroup.subtree_control");
    for (const controller of all) assert.ok(enabled.includes(controller), `${controller} in ${each}`);
  }
}

async function assertMemoryLimit(cgroups: Cgroups): Promise<void> {
  const other = cgroups.create("sb-other-0", limits);
  const bystander = waiting("exec sleep 1000");
  other.add(bystander.pid);
  const group = cgroups.create("sb-greedy-0", limits);
  const greedy = waiting(hog);
  group.add(greedy.pid);
  assert.deepEqual(group.pids, [greedy.pid]);
  assert.equal(group.oomKill(), undefined);
  greedy.go();
  assert.deepEqual(await greedy.ended, [null, "SIGKILL"]);
  assert.equal(group.oomKill(), "limit");
  assert.deepEqual(
    [other.oomKill(), other.pids],
    [undefined, [bystander.pid]],
    "the other machine is not affected",
  );
  endProcess(bystander.pid);
  await other[Symbol.asyncDispose]();
  await group[Symbol.asyncDispose]();
}

/** A limit of a group above the machine is reported as the host's, not as the machine's. */
async function assertLimitAbove(cgroups: Cgroups): Promise<void> {
  const group = cgroups.create("sb-roomy-0", { memoryMib: 100 });
  const above = join(dirname(group.dirOf("memory") ?? ""), "memory.max");
  const unlucky = waiting(hog);
  group.add(unlucky.pid);
  writeFileSync(above, "8M");
  unlucky.go();
  assert.deepEqual(await unlucky.ended, [null, "SIGKILL"]);
  assert.equal(group.oomKill(), "host");
  writeFileSync(above, "max");
  await group[Symbol.asyncDispose]();
}

async function assertThreadLimit(cgroups: Cgroups): Promise<void> {
  const group = cgroups.create("sb-bomb-0", limits);
  const dir = group.dirOf("pids") ?? "";
  const forks = waiting("while :; do sleep 1000 & done");
  group.add(forks.pid);
  forks.go();
  await forks.ended;
  assert.ok(count("max", dir, "pids.events") > 0, "no fork was refused");
  assert.equal(group.pids.length, limits.pids - 1, "the shell has exited, its children still run");
  for (const pid of group.pids) endProcess(pid);
  // The processes may not have exited yet.
  await group[Symbol.asyncDispose]();
  assert.equal(existsSync(dir), false);
}

async function assertCpuLimit(cgroups: Cgroups): Promise<void> {
  const group = cgroups.create("sb-busy-0", { cpuPercent: 10 });
  const dir = group.dirOf("cpu") ?? "";
  const busy = waiting("while :; do :; done");
  group.add(busy.pid);
  busy.go();
  await until("the process is throttled", () => count("nr_throttled", dir, "cpu.stat") > 2);
  endProcess(busy.pid);
  await group[Symbol.asyncDispose]();
}

/** Leaves a machine behind, as a killed daemon does. */
function leaveMachine(cgroups: Cgroups): void {
  const script = `until [ -e /tmp/go ]; do sleep 0.1; done; ${hog}`;
  const survivor = spawn("sh", ["-c", script], { stdio: "ignore", detached: true });
  cgroups.create("sb-kept-0", limits).add(survivor.pid ?? 0);
}

/** Acts as the next daemon: adopts the machine, whose limits still apply. */
async function adoptMachine(cgroups: Cgroups): Promise<void> {
  assert.deepEqual(cgroups.list(), ["sb-kept-0"]);
  const group = cgroups.adopt("sb-kept-0");
  const dir = group?.dirOf("memory") ?? assert.fail("there is no group");
  assert.equal(read(dir, "memory.max").trim(), String(limits.memoryMib << 20));
  assert.ok(group && group.pids.length > 0);
  writeFileSync("/tmp/go", "");
  await until("the machine has exited", () => group.pids.length === 0);
  assert.equal(group.oomKill(), "limit");
  rmSync("/tmp/go");
  await group[Symbol.asyncDispose]();
  cgroups.close();
  assert.equal(existsSync(dirname(dir)), false);
}

/** Moves this process to a group, as if a service manager had started it there. */
const enter = (group: string) => writeFileSync(join(top, group, "cgroup.procs"), String(process.pid));

/** Machines below the daemon's own group, with the daemon in a leaf. */
export async function own(): Promise<void> {
  const unit = join(top, "unit");
  enter("unit");
  const cgroups = Cgroups.open(dataDir);
  assert.equal(ownGroup(), join(unit, "daemon"));
  assertDelegated(cgroups, unit);
  await assertMemoryLimit(cgroups);
  await assertLimitAbove(cgroups);
  await assertThreadLimit(cgroups);
  await assertCpuLimit(cgroups);
  leaveMachine(cgroups);

  // This is why systemd before 254 cannot restart a service that has such groups.
  assert.throws(() => enter("unit"), { code: "EBUSY" });
  enter("unit/daemon");
  writeFileSync(join(unit, "memory.max"), "300M");
  const next = Cgroups.open(dataDir);
  assert.equal(ownGroup(), join(unit, "daemon"));
  const room = next.headroom() ?? assert.fail("the limit of the unit is not seen from the leaf");
  assert.ok(room > 0 && room <= 300 << 20, `${room}`);
  await adoptMachine(next);
}

/** Machines in a separate group beside the daemon's own; one process keeps that group in existence. */
export async function given(): Promise<void> {
  enter("service");
  const machinesGroup = "../machines";
  const keeper = waiting("exec sleep 1000");
  writeFileSync(join(top, "machines/cgroup.procs"), String(keeper.pid));
  const cgroups = Cgroups.open(dataDir, { machinesGroup });
  assertDelegated(cgroups, join(top, "machines"));
  assert.equal(read(top, "machines/keeper/cgroup.procs"), `${keeper.pid}\n`);
  leaveMachine(cgroups);
  enter("service");
  assert.equal(ownGroup(), join(top, "service"));
  await adoptMachine(Cgroups.open(dataDir, { machinesGroup }));
  endProcess(keeper.pid);
  await keeper.ended;
}

/** A group that also holds another process. */
export async function shared(): Promise<void> {
  const other = waiting("exec sleep 1000");
  for (const pid of [other.pid, process.pid]) writeFileSync(join(top, "shared", "cgroup.procs"), String(pid));
  const group = ownGroup();
  const reason = `the group ${group} holds processes of others; run the daemon in one of its own (systemd: Delegate=yes)`;
  const { support } = Cgroups.open(dataDir);
  assert.deepEqual(support, { memory: { reason }, cpu: { reason }, pids: { reason } });
  assert.equal(ownGroup(), join(top, "shared"));
  assert.equal(existsSync(join(group, "daemon")), false);
  endProcess(other.pid);
  await other.ended;
}

/** A threaded group. */
export function refused(): void {
  enter("service");
  const threads = join(top, "service/threads");
  mkdirSync(threads);
  writeFileSync(join(threads, "cgroup.type"), "threaded");
  const reason = `the group ${threads} is one for threads (its cgroup.type); run the daemon in another`;
  const { support } = Cgroups.open(dataDir, { machinesGroup: "threads" });
  assert.deepEqual(support, { memory: { reason }, cpu: { reason }, pids: { reason } });
  rmdirSync(threads);
}
