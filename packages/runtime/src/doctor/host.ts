/** What the kernel and the machine offer: version, memory, limits of processes and files, clock. */
import { readFile } from "node:fs/promises";
import { freemem, release, totalmem } from "node:os";
import { fail, inGib, ok, warn, type Finding } from "./finding.ts";

const gib = 1024 ** 3;
const oldestKernel = [5, 4] as const;
/** file descriptors that a running sandbox costs the daemon: sockets, files and a request */
const descriptorsPerSandbox = 4;
const ownDescriptors = 256;
/** processes and threads of one machine: QEMU's own, and one per vCPU */
const tasksPerSandbox = 8;
/** each follower of a console has one */
const wantedInotify = 64;
/** an earlier clock is certainly wrong: certificates and package lists would be rejected */
const earliest = Date.UTC(2025, 0, 1);

export async function hostFindings({ maxSandboxes }: { maxSandboxes: number }): Promise<Finding[]> {
  return [
    kernel(release()),
    await memory(),
    await swap(),
    await overcommit(),
    await openFiles(maxSandboxes),
    await tasks(maxSandboxes),
    await inotify(),
    clock(Date.now()),
  ];
}

/** Pure. */
export function kernel(version: string): Finding {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldMajor, oldMinor] = oldestKernel;
  if (major > oldMajor || (major === oldMajor && minor >= oldMinor)) return ok("kernel", version);
  return warn("kernel", version, `Use Linux ${oldMajor}.${oldMinor} or later; older ones are not tried.`);
}

async function memory(): Promise<Finding> {
  const free = (await meminfo("MemAvailable")) ?? freemem();
  const detail = `${inGib(free)} of ${inGib(totalmem())} available`;
  if (free >= gib) return ok("memory", detail);
  return warn("memory", detail, "Kill or pause sandboxes that are not needed, or use a larger host.");
}

/** Pages that children write are private to each. If they do not fit, the kernel kills processes. */
async function swap(): Promise<Finding> {
  const total = (await meminfo("SwapTotal")) ?? 0;
  if (total === 0) return ok("swap", "none: a host that runs out of memory ends processes at once");
  const free = (await meminfo("SwapFree")) ?? 0;
  const detail = `${inGib(free)} of ${inGib(total)} free`;
  if (free * 4 >= total) return ok("swap", detail);
  return warn(
    "swap",
    detail,
    "Kill or pause sandboxes, whose memory is being swapped out, or use a larger host.",
  );
}

async function overcommit(): Promise<Finding> {
  const mode = (await readFile("/proc/sys/vm/overcommit_memory", "utf8")).trim();
  if (mode !== "2") return ok("overcommit", `vm.overcommit_memory = ${mode}`);
  return warn(
    "overcommit",
    "vm.overcommit_memory = 2: every child counts with its whole memory, not with what it writes",
    "Run `sysctl vm.overcommit_memory=0`.",
  );
}

async function openFiles(maxSandboxes: number): Promise<Finding> {
  const limit = limitOf(await readFile("/proc/self/limits", "utf8"), "Max open files");
  const wanted = ownDescriptors + maxSandboxes * descriptorsPerSandbox;
  const detail = `${limit} open files, ${wanted} wanted for max_sandboxes = ${maxSandboxes}`;
  if (limit >= wanted) return ok("open files", detail);
  return warn(
    "open files",
    detail,
    `Run \`ulimit -n ${wanted}\` (LimitNOFILE= in a unit), or lower max_sandboxes.`,
  );
}

async function tasks(maxSandboxes: number): Promise<Finding> {
  const own = limitOf(await readFile("/proc/self/limits", "utf8"), "Max processes");
  const [pidMax, threadsMax] = await Promise.all(
    ["pid_max", "threads-max"].map(async (name) =>
      Number(await readFile(`/proc/sys/kernel/${name}`, "utf8")),
    ),
  );
  // Root is not bound by its own limit.
  const limit = Math.min(
    process.getuid?.() === 0 ? Infinity : own,
    pidMax ?? Infinity,
    threadsMax ?? Infinity,
  );
  const wanted = maxSandboxes * tasksPerSandbox;
  const detail = `${limit} tasks, ${wanted} wanted for max_sandboxes = ${maxSandboxes}`;
  if (limit >= wanted) return ok("tasks", detail);
  return warn("tasks", detail, "Raise kernel.pid_max and kernel.threads-max, or lower max_sandboxes.");
}

async function inotify(): Promise<Finding> {
  const limit = Number(await readFile("/proc/sys/fs/inotify/max_user_instances", "utf8"));
  const detail = `${limit} instances per user; each \`logs -f\` takes one`;
  if (limit >= wantedInotify) return ok("inotify", detail);
  return warn("inotify", detail, "Run `sysctl fs.inotify.max_user_instances=128`.");
}

/** Pure: the soft limit of that name in the text of /proc/PID/limits. */
export function limitOf(text: string, name: string): number {
  const value = new RegExp(`^${name}\\s+(\\S+)`, "m").exec(text)?.[1];
  return value === "unlimited" ? Infinity : Number(value);
}

/** Pure. */
export function clock(nowMs: number): Finding {
  const detail = new Date(nowMs).toISOString();
  if (nowMs >= earliest) return ok("clock", detail);
  return fail("clock", `${detail} cannot be right`, "Set the clock (timedatectl set-ntp true).");
}

async function meminfo(name: string): Promise<number | undefined> {
  const kib = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(await readFile("/proc/meminfo", "utf8"))?.[1];
  return kib === undefined ? undefined : Number(kib) * 1024;
}
