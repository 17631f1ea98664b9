/**
 * Starts VMMs through forkd-launch, which builds a jail around each and then becomes the VMM.
 *
 *   root   own uid, own mount, network, IPC and UTS namespaces, an empty root, no capabilities, a filter
 *   user   the same in an unprivileged user namespace; all machines have the daemon's uid
 *   none   no namespaces: only the filter, limits, no new privileges, and Landlock where the kernel has it
 *
 * In every variant the VMM opens the memory file of a snapshot read-only, and gets its listening sockets as
 * descriptors, so it needs no directory in which it could make files.
 */
import { chmod, chown, open, stat } from "node:fs/promises";
import { readFileSync, readlinkSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { isErrno, nativeTool, ProgramFailure, runProgram } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";
import { z } from "zod";
import type { Netdev } from "../engine/engine.ts";
import type { JailFacts, JailOptions, JailVariant, UidRange } from "./facts.ts";
import { findProgram, isBinary, isDynamic, vmmFiles } from "./vmm-files.ts";

type LaunchFiles = {
  /** read-only in the jail */
  readonly read: readonly string[];
  /** regular files that the VMM writes to; they become its own */
  readonly own: readonly string[];
  /** directories that hold them; not writable themselves for a VMM with its own uid */
  readonly dirs: readonly string[];
};

type LaunchSpec = LaunchFiles & {
  readonly args: readonly string[];
  /** listening sockets: [descriptor, path] */
  readonly listen: readonly (readonly [number, string])[];
  /** inherited descriptors beside 0 to 2 */
  readonly keep: readonly number[];
  readonly netdev: Netdev;
  /** the file that must be opened read-only although the VMM asks for more */
  readonly readOnlyFile?: string | undefined;
  /** the view that the VMM takes for its memory file; needs `canPreload` */
  readonly memoryView?: string | undefined;
  /** descriptor that becomes a userfaultfd of the VMM, where the host has what that needs */
  readonly tracker?: number | undefined;
  readonly kvm: boolean;
  /** size that no file of it may exceed */
  readonly maxFileBytes: number;
};

const launcher = "forkd-launch";
const pages = "forkd-pages";
const preload = "libforkd-preload.so";
const probeMs = 30_000;
const maxFiles = 4096;
/** threads of one VMM: its own, one per vCPU and those of its disk requests */
const maxThreads = 1024;
/** variables that the program loader and QEMU itself read */
const passedVariables = ["LD_LIBRARY_PATH", "QEMU_MODULE_DIR"];
const defaultLibraryDirs = /^\/(usr\/)?lib(64)?(\/[a-z0-9_]+-linux-gnu)?$/;

type Parts = {
  program: string;
  canPreload: boolean;
  uids: UidRange;
  files: readonly string[];
  noTracking: string | undefined;
};

const probeSchema = z.looseObject({
  namespaces: z.boolean(),
  tap: z.boolean(),
  tproxy: z.boolean(),
  reasons: z.record(z.string(), z.string()).default({}),
});

export class Launcher {
  readonly facts: JailFacts;
  /** the VMM as an absolute path */
  readonly program: string;
  /** whether a library can be preloaded into it for sure */
  readonly canPreload: boolean;
  /** why the writes of machines cannot be tracked; undefined if they can */
  readonly noTracking: string | undefined;
  readonly #uids: UidRange;
  readonly #files: readonly string[];

  private constructor(facts: JailFacts, parts: Parts) {
    this.facts = facts;
    this.program = parts.program;
    this.canPreload = parts.canPreload;
    this.noTracking = parts.noTracking;
    this.#uids = parts.uids;
    this.#files = parts.files;
  }

  /** Tries what the host allows. Throws `host_not_ready` if a jail is required and none works. */
  static async open(program: string, options: JailOptions): Promise<Launcher> {
    const path = await findProgram(program);
    const common = {
      program: path,
      canPreload: await isDynamic(path),
      uids: options.uids,
      noTracking: await whyNotTracked(),
      files: [],
    };
    if (options.mode === "off") return Launcher.#plain(common, "jail: switched off by the settings");
    const { variant, probe, why } = await strongestVariant();
    const isScript = !(await isBinary(path));
    const weak = isScript ? `${path} is a script, which needs the whole system` : why;
    if (isScript || variant === "none") {
      if (options.mode === "require") throw notPossible(weak);
      const files = isScript ? [] : await vmmFiles(path);
      return Launcher.#plain({ ...common, files }, `jail: ${weak}`);
    }
    const missing = Object.entries(probe.reasons).map(([part, reason]) => `${part}: ${reason}`);
    if (variant === "user") missing.unshift("own uid: the daemon does not run as root");
    // Without tproxy no connection would reach the proxy.
    const netdev = !probe.tproxy ? "none" : probe.tap ? "tap" : "slirp";
    const facts: JailFacts = { variant, netdev, missing };
    return new Launcher(facts, { ...common, files: await vmmFiles(path) });
  }

  static #plain(parts: Parts, missing: string): Launcher {
    return new Launcher({ variant: "none", netdev: "none", missing: [missing] }, parts);
  }

  /** The command that becomes the VMM. */
  command(spec: LaunchSpec): { program: string; args: string[] } {
    const { variant } = this.facts;
    const inJail = variant !== "none";
    // Without namespaces the launcher hides other files with Landlock, where the kernel has it.
    const isConfined = this.#files.length > 0;
    const libraryDirs = [...new Set(this.#files.filter((path) => /\.so(\.|$)/.test(path)).map(dirname))];
    const unusual = libraryDirs.filter((dir) => !defaultLibraryDirs.test(dir) && !dir.endsWith("/qemu"));
    const variables = new Map(
      passedVariables.flatMap((name): [string, string][] => {
        const value = process.env[name];
        return value === undefined ? [] : [[name, value]];
      }),
    );
    if (inJail && unusual.length > 0 && !variables.has("LD_LIBRARY_PATH"))
      variables.set("LD_LIBRARY_PATH", unusual.join(":"));
    const library = nativeTool(preload);
    // Only the library closes the device, so a VMM without it must not get one.
    const tracker = this.noTracking === undefined && this.canPreload ? spec.tracker : undefined;
    const isPreloaded = [spec.readOnlyFile, spec.memoryView, tracker].some((each) => each !== undefined);
    if (isPreloaded) variables.set("LD_PRELOAD", library);
    if (spec.readOnlyFile !== undefined) variables.set("FORKD_READ_ONLY", spec.readOnlyFile);
    if (spec.memoryView !== undefined) variables.set("FORKD_MEMORY_VIEW", spec.memoryView);
    const read = [...this.#files, ...(isPreloaded ? [library] : []), ...spec.read];
    const args = [
      ...["--variant", variant],
      ...(variant === "root" ? ["--uids", `${this.#uids.first}:${this.#uids.count}`] : []),
      ...(variant === "root" ? groups(this.#uids.first, spec.kvm) : []),
      ...spec.keep.flatMap((fd) => ["--keep", String(fd)]),
      ...spec.listen.flatMap(([fd, path]) => ["--listen", `${fd}:${path}`]),
      ...(variant === "root" ? spec.own.flatMap((path) => ["--own", path]) : []),
      ...(isConfined ? unique(read).flatMap((path) => ["--read", path]) : []),
      ...(isConfined ? unique(spec.dirs).flatMap((path) => ["--write", path]) : []),
      ...(inJail && spec.kvm ? ["--device", "/dev/kvm"] : []),
      ...(inJail ? ["--net", netOption(spec.netdev)] : []),
      ...(tracker === undefined ? [] : ["--track", String(tracker)]),
      ...[...variables].flatMap(([name, value]) => ["--env", `${name}=${value}`]),
      ...["--limit-file", String(spec.maxFileBytes), "--limit-files", String(maxFiles)],
      // The limit counts all processes of a uid, and only here the uid is the machine's own.
      ...(variant === "root" ? ["--limit-threads", String(maxThreads)] : []),
      ...["--", this.program, ...spec.args],
    ];
    return { program: nativeTool(launcher), args };
  }

  /** Lets the VMM read files of forkd, and open files in its directories, but not make any there. */
  async admit({ read, own, dirs }: LaunchFiles): Promise<void> {
    for (const path of own) await ensureFile(path);
    if (this.facts.variant !== "root") return;
    await Promise.all([
      ...dirs.map((dir) => chmod(dir, 0o711)),
      ...read.map((path) => this.#makeReadable(path)),
    ]);
  }

  async #makeReadable(path: string): Promise<void> {
    const { mode, gid, uid } = await stat(path);
    if ((mode & 0o004) !== 0 || (gid === this.#uids.first && (mode & 0o040) !== 0)) return;
    await chown(path, uid, this.#uids.first);
    await chmod(path, (mode & 0o777) | 0o040);
  }

  /** Lets a VMM write to a file, which is made if there is none: no variant allows a VMM to make files. */
  async give(path: string, pid: number): Promise<void> {
    await ensureFile(path);
    const uid = uidOf(pid);
    if (uid !== undefined && uid !== process.getuid?.()) await chown(path, uid, uid);
  }

  /** Takes a file back: the VMM may only read it from now on. */
  async takeBack(path: string): Promise<void> {
    if (process.getuid?.() !== 0) return;
    const { uid } = await stat(path);
    if (uid === 0) return;
    await chown(path, 0, this.#uids.first);
    await chmod(path, 0o640);
  }
}

function netOption(netdev: Netdev): string {
  if (netdev.kind === "tap") return `tap:${netdev.fd}`;
  return netdev.kind === "slirp" ? "slirp" : "off";
}

/** Asks the kernel what the launcher and the VMM will ask it, as the same user. */
async function whyNotTracked(): Promise<string | undefined> {
  try {
    await runProgram(nativeTool(pages), ["tracking"], { timeoutMs: probeMs });
    return undefined;
  } catch (error) {
    const said = error instanceof ProgramFailure ? /^error E\w+ (.*)$/m.exec(error.stdout)?.[1] : undefined;
    return said ?? errorMessage(error);
  }
}

type Probe = z.output<typeof probeSchema>;

async function strongestVariant(): Promise<{ variant: JailVariant; probe: Probe; why: string }> {
  const none: Probe = { namespaces: false, tap: false, tproxy: false, reasons: {} };
  const reasons: string[] = [];
  for (const variant of variants()) {
    try {
      const { stdout } = await runProgram(nativeTool(launcher), ["--probe", variant], { timeoutMs: probeMs });
      const probe = probeSchema.parse(JSON.parse(stdout));
      if (probe.namespaces) return { variant, probe, why: "" };
      reasons.push(...Object.entries(probe.reasons).map(([part, reason]) => `${part}: ${reason}`));
    } catch (error) {
      reasons.push(errorMessage(error));
    }
  }
  return { variant: "none", probe: none, why: reasons.join("; ") };
}

function notPossible(why: string): AppError {
  return new AppError("host_not_ready", `Cannot put VMMs in a jail, which the settings require: ${why}`, {
    remedy: { action: "run_doctor" },
  });
}

/** All VMMs are in the first group of the range, which may read the files of snapshots. */
function groups(first: number, kvm: boolean): string[] {
  const device = kvm ? groupOf("/dev/kvm") : undefined;
  return ["--group", String(first), ...(device === undefined ? [] : ["--group", String(device)])];
}

function variants(): ("root" | "user")[] {
  return process.getuid?.() === 0 ? ["root", "user"] : ["user"];
}

function groupOf(path: string): number | undefined {
  const gid = statSync(path, { throwIfNoEntry: false })?.gid;
  return gid === 0 ? undefined : gid;
}

/** The real uid of a process, in the daemon's user namespace; undefined if it has exited. */
function uidOf(pid: number): number | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "latin1");
    const uid = /^Uid:\s+(\d+)/m.exec(status)?.[1];
    return uid === undefined ? undefined : Number(uid);
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}

/** The variant of a running VMM, which an earlier daemon may have started with other settings. */
export function jailOf(pid: number): JailVariant {
  try {
    // Not the mount namespace: under systemd each daemon has its own.
    if (readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync("/proc/self/ns/net")) return "none";
    return readlinkSync(`/proc/${pid}/ns/user`) === readlinkSync("/proc/self/ns/user") ? "root" : "user";
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH", "EACCES", "EPERM")) return "none";
    throw error;
  }
}

async function ensureFile(path: string): Promise<void> {
  await using _file = await open(path, "a", 0o600);
}

function unique(paths: readonly string[]): string[] {
  return [...new Set(paths)];
}
