/**
 * The slot of a machine: what forkd-launch builds before it becomes the VMM, what gate and proxy add, and the
 * memory of the kernel for it. A program that only copies its input stands for the VMM, in the jail that a VMM
 * would have. Its first answer shows that it runs.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mapPool, nullLogger, Scope } from "@forkd/base";
import { EgressProxy } from "@forkd/egress";
import { identify, Launcher } from "@forkd/machine";
import { deadline, limits, rest, stop } from "../deadline.ts";
import { rssBytes } from "../processes.ts";
import { median, type Rows } from "../rows.ts";
import { addTimes, inRounds, timed } from "./measure.ts";

export const starts = { plain: "no jail", jail: "jail", slot: "jail and network" } as const;
type Start = keyof typeof starts;

const vmm = "qemu-system-x86_64";
const tapDescriptor = 7;
/** as the default of the setting jail_uids */
const uids = { first: 1_900_000_000, count: 4_194_304 };
/** kernel threads remove namespaces after their last process has exited; there is no event for it */
const settleMs = 1500;

/** Why this host cannot give each machine its own network, reached through a tap. */
export async function obstacle(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return "needs root, for network namespaces";
  const { facts } = await Launcher.open(vmm, { mode: "auto", uids });
  return facts.variant === "root" && facts.netdev === "tap" ? undefined : facts.missing.join("; ");
}

class Starter {
  readonly #launcher: Launcher;
  readonly #program = realpathSync("/bin/cat");
  readonly #dir: string;

  constructor(launcher: Launcher, dir: string) {
    this.#launcher = launcher;
    this.#dir = dir;
  }

  #command(kind: Start): string[] {
    if (kind === "plain") return [this.#program];
    const { program, args } = this.#launcher.command({
      args: [],
      ...{ read: [this.#program], own: [], dirs: [this.#dir], listen: [], keep: [] },
      netdev: kind === "slot" ? { kind: "tap", fd: tapDescriptor } : { kind: "hubport" },
      kvm: false,
      maxFileBytes: 1 << 30,
    });
    return [program, ...args.slice(0, args.indexOf("--")), "--", this.#program];
  }

  /** Resolves when the program runs. The scope ends it. */
  async start(scope: Scope, kind: Start): Promise<ChildProcess> {
    const [program = "", ...args] = this.#command(kind);
    const child = spawn(program, args, { cwd: "/", stdio: ["pipe", "pipe", "inherit"] });
    scope.defer(() => stop("a program", child, { signal: "SIGKILL", secs: limits.command }));
    child.stdin.on("error", () => undefined).write("x");
    const ended = once(child, "exit").then(() => {
      throw new Error(`The program exited (${starts[kind]})`);
    });
    ended.catch(() => undefined);
    await deadline("a program to run", limits.command, Promise.race([once(child.stdout, "data"), ended]));
    return child;
  }
}

/** Time that a process of one thread has run so far, in the launcher too; less noisy than wall time. */
function cpuMs(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/schedstat`, "latin1").split(" ")[0]) / 1e6;
}

/** KiB by kind. */
function kernelMemory(): Record<string, number> {
  const text = readFileSync("/proc/meminfo", "latin1");
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
  return {
    slab: field("Slab"),
    unreclaimable: field("SUnreclaim"),
    percpu: field("Percpu"),
    other: field("KernelStack") + field("PageTables"),
  };
}

type Held = { memory: Record<string, number>; addMs: number[]; proxyKib: number };

/** Starts n at once that stay, and returns what they take together. */
async function hold(starter: Starter, kind: Start, n: number): Promise<Held> {
  await rest(settleMs);
  await using scope = new Scope();
  const proxy = scope.use(await EgressProxy.start({ log: nullLogger() }));
  const before = kernelMemory();
  const children: ChildProcess[] = [];
  await mapPool(Array.from({ length: n }), 4, async () => children.push(await starter.start(scope, kind)));
  const rss = () => rssBytes(proxy.pid ?? 0) / 1024;
  const rssBefore = rss();
  const addMs: number[] = [];
  for (const { pid = 0 } of kind === "slot" ? children : []) {
    const id = identify(pid);
    if (!id) throw new Error("The program has exited");
    const policy = { mode: "filtered", rules: ["allow *.example.com:443"], ceilings: [] } as const;
    const machine = { id: String(pid), ...id, policy, secrets: [], limits: {} };
    addMs.push(await timed(() => proxy.add(machine)));
  }
  const after = kernelMemory();
  const memory = Object.fromEntries(
    Object.entries(after).map(([name, kib]) => [name, (kib - (before[name] ?? 0)) / n]),
  );
  return { memory, addMs, proxyKib: (rss() - rssBefore) / n };
}

export async function measureSlots(
  rows: Rows,
  { tries, n, rounds }: { tries: number; n: number; rounds: number },
): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "forkd-bench-slots-"));
  try {
    const launcher = await Launcher.open(vmm, { mode: "require", uids });
    const starter = new Starter(launcher, dir);
    const cpu: Record<Start, number[]> = { plain: [], jail: [], slot: [] };
    // They stay until the end: the kernel removes namespaces slowly, and new ones wait for that.
    await using scope = new Scope();
    const once = (kind: Start) => async () => {
      const begun = performance.now();
      const { pid = 0 } = await starter.start(scope, kind);
      const wallMs = performance.now() - begun;
      cpu[kind].push(cpuMs(pid));
      return [wallMs];
    };
    const times = await inRounds(tries, {
      plain: once("plain"),
      jail: once("jail"),
      slot: once("slot"),
    });
    for (const kind of ["plain", "jail", "slot"] as const)
      addTimes(rows, `start, ${starts[kind]}`, times[kind], { cpu_ms: median(cpu[kind]) });
    for (let round = 0; round < rounds; round++) await measureMemory(rows, starter, n);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Of slots, less that of as many programs without a jail. */
async function measureMemory(rows: Rows, starter: Starter, n: number): Promise<void> {
  const plain = await hold(starter, "plain", n);
  const slots = await hold(starter, "slot", n);
  const more = (name: string) => (slots.memory[name] ?? 0) - (plain.memory[name] ?? 0);
  const row = {
    case: "slots",
    n,
    wall_ms: median(slots.addMs),
    slab_kib: more("slab"),
    unreclaimable_kib: more("unreclaimable"),
    percpu_kib: more("percpu"),
    other_kib: more("other"),
    proxy_kib: slots.proxyKib,
  };
  rows.add(row, `${row.slab_kib.toFixed(0)} KiB of slab each`);
}
