import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test, type TestContext } from "node:test";
import { Cgroups, groupNameOf } from "../../src/host/cgroup/cgroups.ts";
import { controllers, findPositions } from "../../src/host/cgroup/hierarchies.ts";
import { temporaryDirectory } from "@forkd/test-support";

const dataDir = "/data of a test";
const ours = groupNameOf(dataDir);

/** A line of mountinfo for a mount point in the test's directory. */
function mount(point: string, type: "cgroup" | "cgroup2", options: string, root = "/"): string {
  return `31 23 0:28 ${root} ${point} rw,nosuid shared:9 - ${type} ${type} rw,${options}\n`;
}

function write(path: string, text = ""): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

function read(...path: string[]): string {
  return readFileSync(join(...path), "utf8");
}

/** A host with version 2; `own` is the group of the daemon. */
async function secondVersion(
  t: TestContext,
  own: string,
  has = "cpuset cpu io memory pids",
): Promise<{ top: string; mountinfo: string; groups: string }> {
  const top = join(await temporaryDirectory(t), "cgroup");
  write(join(top, "cgroup.controllers"), `${has}\n`);
  write(join(top, own, "cgroup.controllers"), `${has}\n`);
  write(join(top, own, "cgroup.procs"));
  if (own !== "/") write(join(top, own, "cgroup.type"), "domain\n");
  return { top, mountinfo: mount(top, "cgroup2", "nsdelegate"), groups: `0::${own}\n` };
}

test("findPositions() finds each controller on a host with both versions", async (t) => {
  const { top, mountinfo } = await secondVersion(t, "/", "hugetlb memory");
  const dir = await temporaryDirectory(t);
  const both =
    mount(join(dir, "cpu,cpuacct"), "cgroup", "cpu,cpuacct") +
    mount(join(dir, "name"), "cgroup", "xattr,name=systemd") +
    mountinfo;
  const positions = findPositions(both, "4:cpu,cpuacct:/jobs/one\n1:name=systemd:/x\n0::/slice/unit\n");
  assert.deepEqual(positions.cpu, { version: 1, dir: join(dir, "cpu,cpuacct/jobs/one") });
  assert.deepEqual(positions.memory, { version: 2, dir: join(top, "slice/unit") });
  assert.match("reason" in positions.pids ? positions.pids.reason : "", /"pids" is mounted/);
});

test("findPositions() handles the partial mounts of a container", () => {
  const info = mount("/sys/fs/cgroup/memory", "cgroup", "memory", "/docker/abc");
  assert.deepEqual(findPositions(info, "4:memory:/docker/abc/x\n").memory, {
    version: 1,
    dir: "/sys/fs/cgroup/memory/x",
  });
  for (const path of ["/docker/abcd", "/other", "/../x"]) {
    const { memory } = findPositions(info, `4:memory:${path}\n`);
    assert.match("reason" in memory ? memory.reason : "", /is not visible/, path);
  }
  const spaced = mount("/sys/fs/a\\040b", "cgroup", "pids");
  assert.deepEqual(findPositions(spaced, "4:pids:/\n").pids, { version: 1, dir: "/sys/fs/a b/" });
});

test("version 1: a group has limits only in the hierarchies that it needs", async (t) => {
  const dir = await temporaryDirectory(t);
  for (const controller of controllers) mkdirSync(join(dir, controller, "own"), { recursive: true });
  const info = controllers.map((each) => mount(join(dir, each), "cgroup", each)).join("");
  const groups = controllers.map((each, nth) => `${nth}:${each}:/own\n`).join("");
  const cgroups = Cgroups.open(dataDir, { positions: findPositions(info, groups) });
  const group = cgroups.create("sb-1-0", { memoryMib: 64, cpuPercent: 7 });
  group.add(4711);
  const at = (controller: string, file: string) => read(dir, controller, "own", ours, "sb-1-0", file);
  assert.equal(at("memory", "memory.limit_in_bytes"), String(64 * 1024 * 1024));
  assert.deepEqual([at("cpu", "cpu.cfs_quota_us"), at("cpu", "cpu.cfs_period_us")], ["7000", "100000"]);
  assert.deepEqual([at("memory", "cgroup.procs"), at("cpu", "cgroup.procs")], ["4711", "4711"]);
  assert.equal(existsSync(join(dir, "pids/own", ours)), false);
  assert.equal(existsSync(join(dir, "memory/own", ours, "sb-1-0", "memory.memsw.limit_in_bytes")), false);
  assert.deepEqual(cgroups.list(), ["sb-1-0"]);
  assert.deepEqual(cgroups.adopt("sb-1-0")?.dirs.sort(), group.dirs.sort());
  assert.equal(cgroups.adopt("sb-2-0"), undefined);
});

test("version 1: headroom() is the memory that the daemon's own group leaves", async (t) => {
  const dir = await temporaryDirectory(t);
  write(join(dir, "cgroup.procs"));
  const at = (limit: string) => {
    write(join(dir, "memory.limit_in_bytes"), limit);
    write(join(dir, "memory.usage_in_bytes"), "700\n");
    write(
      join(dir, "memory.stat"),
      "cache 9\ninactive_file 1\ntotal_inactive_file 200\ntotal_active_file 30\n",
    );
    const positions = findPositions(mount(dir, "cgroup", "memory"), "4:memory:/\n");
    return Cgroups.open(dataDir, { positions }).headroom();
  };
  assert.equal(at("1000\n"), 530);
  assert.equal(at("9223372036854771712\n"), undefined);
});

test("version 2: headroom() is the minimum of the groups, their ancestors and the machines group", async (t) => {
  const { top, mountinfo } = await secondVersion(t, "/jobs/unit/daemon");
  const room = (group: string, max: string, used: number) => {
    write(join(top, group, "cgroup.procs"));
    write(join(top, group, "cgroup.type"), "domain\n");
    write(join(top, group, "memory.max"), `${max}\n`);
    write(join(top, group, "memory.current"), `${used}\n`);
    write(join(top, group, "memory.stat"), "inactive_file 2\nactive_file 1\n");
  };
  const headroom = (machinesGroup?: string) => {
    const positions = findPositions(mountinfo, "0::/jobs/unit/daemon\n");
    return Cgroups.open(dataDir, { positions, pid: 4711, machinesGroup }).headroom();
  };
  for (const group of ["jobs", "jobs/unit", "jobs/unit/daemon", "jobs/machines"]) room(group, "max", 10);
  assert.equal(headroom(), undefined);
  room("jobs/unit", "1000", 400);
  assert.equal(headroom(), 603);
  room("jobs/machines", "500", 400);
  assert.deepEqual([headroom(), headroom("../../machines")], [603, 103]);
  room("jobs", "900", 890);
  assert.equal(headroom("../../machines"), 13);
});

test("version 2: with a machines group, the daemon creates groups there and does not move", async (t) => {
  const { top, mountinfo, groups } = await secondVersion(t, "/system.slice/forkd.service");
  const machines = join(top, "system.slice/forkd-machines.service");
  const open = (machinesGroup: string) =>
    Cgroups.open(dataDir, { positions: findPositions(mountinfo, groups), pid: 4711, machinesGroup });
  const absent = open("../forkd-machines.service").support.memory;
  assert.match(
    "reason" in absent ? absent.reason : "",
    /no group .*forkd-machines\.service .*machines_cgroup/,
  );
  assert.equal(existsSync(machines), false);
  write(join(machines, "cgroup.type"), "domain\n");
  write(join(machines, "cgroup.procs"), "812\n");
  const cgroups = open("../forkd-machines.service");
  assert.deepEqual(cgroups.create("sb-1-0", { pids: 32 }).dirs, [join(machines, ours, "sb-1-0")]);
  assert.equal(read(machines, "keeper/cgroup.procs"), "812");
  assert.equal(read(top, "system.slice/forkd.service/cgroup.procs"), "");
  assert.equal(existsSync(join(top, "system.slice/forkd.service/daemon")), false);
});

test("version 1: oomKill() distinguishes kills by the group's limit and by the host", async (t) => {
  const dir = await temporaryDirectory(t);
  const cgroups = Cgroups.open(dataDir, {
    positions: findPositions(mount(dir, "cgroup", "memory"), "4:memory:/\n"),
  });
  const group = cgroups.create("sb-1-0", { memoryMib: 64 });
  const place = group.dirOf("memory") ?? "";
  const oomKill = (kills: number, most: number) => {
    writeFileSync(join(place, "memory.oom_control"), `oom_kill_disable 0\nunder_oom 0\noom_kill ${kills}\n`);
    writeFileSync(join(place, "memory.max_usage_in_bytes"), `${most * 1024 * 1024}\n`);
    return group.oomKill();
  };
  assert.deepEqual([oomKill(0, 64), oomKill(1, 64), oomKill(1, 40)], [undefined, "limit", "host"]);
});

test("version 2: the daemon moves to its own leaf so that its group can have groups", async (t) => {
  const { top, mountinfo, groups } = await secondVersion(t, "/system.slice/forkd.service");
  const cgroups = Cgroups.open(dataDir, { positions: findPositions(mountinfo, groups), pid: 4711 });
  const own = join(top, "system.slice/forkd.service");
  assert.equal(read(own, "daemon/cgroup.procs"), "4711");
  // The file has only the last write; the kernel would enable all of them.
  assert.equal(read(own, "cgroup.subtree_control"), "+pids");
  assert.equal(read(own, ours, "cgroup.subtree_control"), "+pids");
  const group = cgroups.create("sb-1-0", { memoryMib: 64, cpuPercent: 150, pids: 32 });
  const place = join(own, ours, "sb-1-0");
  assert.deepEqual(group.dirs, [place]);
  assert.deepEqual(
    ["memory.max", "cpu.max", "pids.max"].map((file) => read(place, file)),
    ["67108864", "150000 100000", "32"],
  );
  for (const [events, expected] of [
    ["oom 0\noom_kill 0\n", undefined],
    ["max 7\noom 2\noom_kill 1\noom_group_kill 0\n", "limit"],
    ["max 7\noom 0\noom_kill 1\n", "host"],
  ] as const) {
    writeFileSync(join(place, "memory.events"), events);
    assert.equal(group.oomKill(), expected);
  }
});

test("version 2: a daemon that is in the leaf already, or in the root group, does not move", async (t) => {
  const leaf = await secondVersion(t, "/unit/daemon");
  Cgroups.open(dataDir, { positions: findPositions(leaf.mountinfo, leaf.groups), pid: 4711 });
  assert.equal(read(leaf.top, "unit/daemon/cgroup.procs"), "");
  assert.ok(existsSync(join(leaf.top, "unit", ours)));
  const root = await secondVersion(t, "/");
  Cgroups.open(dataDir, { positions: findPositions(root.mountinfo, root.groups), pid: 4711 });
  assert.equal(read(root.top, "cgroup.procs"), "");
  assert.ok(existsSync(join(root.top, ours)));
});

test("version 2: support reports why a controller is not delegated", async (t) => {
  const { top, mountinfo, groups } = await secondVersion(t, "/unit");
  writeFileSync(join(top, "unit", "cgroup.controllers"), "memory pids\n");
  const { support } = Cgroups.open(dataDir, { positions: findPositions(mountinfo, groups), pid: 4711 });
  assert.ok("dir" in support.memory && "dir" in support.pids);
  assert.match("reason" in support.cpu ? support.cpu.reason : "", /cpu are not delegated/);
});

test("version 2: an invisible group gives a reason, not an error", async (t) => {
  const { top, mountinfo } = await secondVersion(t, "/");
  write(join(top, "gone", "cgroup.type"), "domain\n");
  const { support } = Cgroups.open(dataDir, { positions: findPositions(mountinfo, "0::/gone\n"), pid: 4711 });
  assert.match("reason" in support.memory ? support.memory.reason : "", /gone cannot be used: ENOENT/);
});

test("without a hierarchy, no limit is supported and the reasons say so", () => {
  const cgroups = Cgroups.open(dataDir, { positions: findPositions("", "0::/\n") });
  for (const each of controllers) assert.match(JSON.stringify(cgroups.support[each]), /is mounted/);
  assert.throws(() => cgroups.create("x", { memoryMib: 64 }), /Cannot limit memory/);
  assert.deepEqual([cgroups.list(), cgroups.headroom()], [[], undefined]);
  cgroups.close();
});

/** Runs a program in a group of this host; skips the test if we may not create one. */
async function inGroup(
  t: TestContext,
  limits: Parameters<Cgroups["create"]>[1],
  script: string,
): Promise<{ signal: string | null; group: ReturnType<Cgroups["create"]>; cgroups: Cgroups } | undefined> {
  const cgroups = Cgroups.open(await temporaryDirectory(t));
  const missing = Object.values(cgroups.support).find((each) => "reason" in each);
  if (missing) {
    cgroups.close();
    t.skip(JSON.stringify(missing));
    return undefined;
  }
  const group = cgroups.create("sb-1-0", limits);
  t.after(async () => {
    await group[Symbol.asyncDispose]();
    cgroups.close();
    for (const dir of group.dirs) assert.equal(existsSync(dirname(dir)), false, dir);
  });
  const child = spawn("sh", ["-c", `read _; ${script}`], { stdio: ["pipe", "ignore", "ignore"] });
  group.add(child.pid ?? 0);
  assert.deepEqual(group.pids, [child.pid]);
  child.stdin.end("go\n");
  const [, signal] = (await once(child, "exit")) as [number | null, string | null];
  return { signal, group, cgroups };
}

test("a real group kills a process that exceeds its memory limit, and oomKill() reports it", async (t) => {
  const program = `exec node -e 'const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))'`;
  const ran = await inGroup(t, { memoryMib: 64 }, program);
  if (!ran) return;
  assert.equal(ran.signal, "SIGKILL");
  assert.equal(ran.group.oomKill(), "limit");
  assert.equal(ran.cgroups.adopt("sb-1-0")?.oomKill(), "limit");
});

test("a real group does not kill a process that reads large files", async (t) => {
  const file = join(await temporaryDirectory(t), "large");
  writeFileSync(file, Buffer.alloc(48 << 20, 7));
  const ran = await inGroup(t, { memoryMib: 32 }, `cat ${file} ${file} > /dev/null; cat ${file} > ${file}.2`);
  if (!ran) return;
  assert.equal(ran.signal, null);
  assert.equal(ran.group.oomKill(), undefined);
});

test("a real group enforces the limits of CPU time and threads", async (t) => {
  // Uses many times the 10 ms that it may have at once, on any host.
  const loop = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
  const ran = await inGroup(t, { cpuPercent: 10, pids: 16 }, loop);
  if (!ran) return;
  const throttled = /nr_throttled (\d+)/.exec(read(ran.group.dirOf("cpu") ?? "", "cpu.stat"))?.[1];
  assert.ok(Number(throttled) > 0, `throttled ${throttled} times`);
  assert.equal(read(ran.group.dirOf("pids") ?? "", "pids.max").trim(), "16");
});
