/**
 * Decides before anything is started whether the host, the daemon's settings and the caller's key have
 * capacity for a request.
 *
 * Check and reservation are one synchronous step, so of two calls that do not both fit one is refused. A
 * reservation is released piece by piece as children are registered, and counted there, or fail; disposing it
 * releases the rest.
 *
 * A running sandbox counts with its memory limit, or without one with its guest's memory. A paused sandbox
 * uses no memory, but counts as a sandbox of its owner and with its disk.
 */
import { readFileSync, statfsSync } from "node:fs";
import { AppError, plural, type Remedy } from "@forkd/contract";
import type { Cgroups } from "@forkd/machine";
import type { StoredSnapshot } from "@forkd/store";
import type { QuotaSettings } from "../config.ts";
import type { Caller } from "../context.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

const mib = 1024 * 1024;
/** memory of a VMM before its guest has written anything */
const vmmMib = 24;
/** an overlay, a console and a log */
const childDiskMib = 1;
const retryAfterSecs = 1;

/** A request for `n` machines; the sizes are those of each. */
export type Ask = {
  /** for the message: "Cannot fork 3" */
  what: string;
  n: number;
  /** memory of the guest, or its limit if that is lower */
  memoryMib: number;
  /** what each is expected to use at first; default: a part of its memory */
  expectMib?: number | undefined;
  /** maximum size of its disk on the host */
  diskMib: number;
  /** what is written immediately; default: hardly anything */
  writesMib?: number | undefined;
  caller?: Caller | undefined;
  /** false: it already counts as a sandbox of its owner */
  isNew?: boolean | undefined;
  /** false: not a sandbox, for example the machine of a build */
  isSandbox?: boolean | undefined;
  /** how many of them wait ready already, with their memory, as children of this snapshot */
  readyCount?: number | undefined;
  readyIn?: StoredSnapshot | undefined;
  /** true: nothing else gives up capacity for it */
  isBackground?: boolean | undefined;
};

export class Reservation implements Disposable {
  readonly ask: Ask;
  #left: number;
  readonly #onEmpty: () => void;

  constructor(ask: Ask, onEmpty: () => void) {
    this.ask = ask;
    this.#left = ask.n;
    this.#onEmpty = onEmpty;
  }

  get left(): number {
    return this.#left;
  }

  release(count = 1): void {
    if (this.#left === 0) return;
    this.#left = Math.max(0, this.#left - count);
    if (this.#left === 0) this.#onEmpty();
  }

  [Symbol.dispose](): void {
    this.release(this.#left);
  }
}

type AdmissionParts = {
  dataDir: string;
  maxSandboxes: number;
  settings: QuotaSettings;
  cgroups: Cgroups;
  sandboxes: () => readonly Sandbox[];
};

/** Work that gives its capacity up when a caller needs it. */
type BackgroundUse = {
  /** Stops work that has a reservation. Returns false if none runs. */
  yield: () => boolean;
  /** memory that free() would free in the next moments */
  freeableMib: (ask: Ask) => number;
  free: (ask: Ask) => void;
};

type Bound = { which: string; asked: number; inUse: number; limit: number; text: string; remedy: Remedy };

export class Admission {
  readonly #parts: AdmissionParts;
  readonly #open = new Set<Reservation>();
  /** What can make room before a request is refused. */
  background: BackgroundUse | undefined;

  constructor(parts: AdmissionParts) {
    this.#parts = parts;
  }

  /** sandboxes that are reserved but not registered yet */
  get pending(): number {
    return this.#sum(({ isSandbox = true }) => (isSandbox ? 1 : 0));
  }

  /** Reserves everything, or throws capacity_exhausted. */
  admit(ask: Ask): Reservation {
    if (ask.n > 0) {
      if (ask.isSandbox ?? true) this.#checkSandboxes(ask);
      this.#checkCaller(ask);
      this.#checkTotals(ask);
      try {
        this.#checkHost(ask);
      } catch (error) {
        if (ask.isBackground || !this.#makeRoom(ask)) throw error;
      }
    }
    const reservation = new Reservation(ask, () => void this.#open.delete(reservation));
    if (reservation.left > 0) this.#open.add(reservation);
    return reservation;
  }

  /** Returns whether there is room now. Gives up nothing that would not be enough. */
  #makeRoom(ask: Ask): boolean {
    const { background } = this;
    if (!background) return false;
    const fits = (freedMib: number) => {
      try {
        this.#checkHost(ask, freedMib);
        return true;
      } catch {
        return false;
      }
    };
    if (background.yield() && fits(0)) return true;
    if (!fits(background.freeableMib(ask))) return false;
    background.free(ask);
    return true;
  }

  #checkSandboxes({ what, n }: Ask): void {
    const { maxSandboxes, settings, sandboxes } = this.#parts;
    const waiting = this.pending;
    const live = sandboxes().filter(({ state }) => state === "running").length + waiting;
    refuseAbove({
      which: "max_sandboxes",
      asked: n,
      inUse: live,
      limit: maxSandboxes,
      text: `Cannot ${what}: ${counted(live, "sandbox")} live and the limit is ${maxSandboxes}`,
      remedy: { action: "pause_some", setting: "max_sandboxes" },
    });
    refuseAbove({
      which: "max_pending_forks",
      asked: n,
      inUse: waiting,
      limit: settings.maxPendingForks,
      text: `Cannot ${what}: ${counted(waiting, "child", "children")} waiting to be started and the limit is ${settings.maxPendingForks}`,
      remedy: { action: "retry_later" },
    });
  }

  #checkCaller(ask: Ask): void {
    const { caller, what, n, memoryMib } = ask;
    const limits = caller?.limits;
    if (!caller || !limits) return;
    const own = this.#parts.sandboxes().filter((each) => each.facts.owner === caller.name && !each.isDead);
    const isOwn = (other: Ask) => other.caller?.name === caller.name;
    if (limits.sandboxes !== undefined && (ask.isNew ?? true) && (ask.isSandbox ?? true)) {
      const waiting = this.#sum((other) =>
        isOwn(other) && (other.isNew ?? true) && (other.isSandbox ?? true) ? 1 : 0,
      );
      refuseAbove({
        which: "key_sandboxes",
        asked: n,
        inUse: own.length + waiting,
        limit: limits.sandboxes,
        text: `Cannot ${what}: the key "${caller.name}" has ${plural(own.length + waiting, "sandbox")} and may have ${limits.sandboxes}`,
        remedy: { action: "kill_some" },
      });
    }
    if (limits.memoryMib === undefined) return;
    const inUse = memoryOf(own) + this.#sum((other) => (isOwn(other) ? other.memoryMib : 0));
    refuseAbove({
      which: "key_memory_mib",
      asked: n * memoryMib,
      inUse,
      limit: limits.memoryMib,
      text: `Cannot ${what} with ${n * memoryMib} MiB: the running sandboxes of the key "${caller.name}" have ${inUse} MiB and may have ${limits.memoryMib}`,
      remedy: { action: "pause_some" },
    });
  }

  #checkTotals({ what, n, memoryMib, diskMib }: Ask): void {
    const { maxMemoryMib, maxDiskMib } = this.#parts.settings;
    const all = this.#parts.sandboxes();
    if (maxMemoryMib > 0) {
      const inUse = memoryOf(all) + this.#sum((other) => other.memoryMib);
      refuseAbove({
        which: "max_memory_mib",
        asked: n * memoryMib,
        inUse,
        limit: maxMemoryMib,
        text: `Cannot ${what} with ${n * memoryMib} MiB: running sandboxes have ${inUse} MiB and the limit is ${maxMemoryMib}`,
        remedy: { action: "pause_some", setting: "max_memory_mib" },
      });
    }
    if (maxDiskMib > 0) {
      const inUse = diskOf(all) + this.#sum((other) => other.diskMib);
      refuseAbove({
        which: "max_disk_mib",
        asked: n * diskMib,
        inUse,
        limit: maxDiskMib,
        text: `Cannot ${what} with disks of ${n * diskMib} MiB: those of all sandboxes may become ${inUse} MiB and the limit is ${maxDiskMib}`,
        remedy: { action: "kill_some", setting: "max_disk_mib" },
      });
    }
  }

  #checkHost(ask: Ask, freedMib = 0): void {
    const { what, n, readyCount = 0 } = ask;
    const { memoryReserveMib, diskReserveMib } = this.#parts.settings;
    const memory = {
      asked: Math.max(0, n - readyCount) * this.#expected(ask),
      inUse: this.#reservedMib(),
      free: Math.max(0, this.#freeMemoryMib() + freedMib - memoryReserveMib),
    };
    refuseAbove({
      which: "host_memory_mib",
      asked: memory.asked,
      inUse: memory.inUse,
      limit: memory.free,
      text: `Cannot ${what}: the host has ${memory.free} MiB of memory available, ${memory.inUse} are reserved, and about ${memory.asked} are needed`,
      remedy: { action: "pause_some", setting: "memory_overcommit" },
    });
    const writes = ({ writesMib = childDiskMib }: Ask) => writesMib;
    const disk = {
      asked: n * writes(ask),
      inUse: this.#sum(writes),
      free: Math.max(0, freeDiskMib(this.#parts.dataDir) - diskReserveMib),
    };
    refuseAbove({
      which: "host_disk_mib",
      asked: disk.asked,
      inUse: disk.inUse,
      limit: disk.free,
      text: `Cannot ${what}: ${this.#parts.dataDir} has ${disk.free} MiB available and about ${disk.inUse + disk.asked} are needed`,
      remedy: { action: "free_disk" },
    });
  }

  #expected({ memoryMib, expectMib }: Ask): number {
    return expectMib ?? Math.ceil(vmmMib + memoryMib / this.#parts.settings.memoryOvercommit);
  }

  /** Children that wait ready have their memory already. */
  #reservedMib(): number {
    let sum = 0;
    for (const { ask, left } of this.#open)
      sum += Math.max(0, left - (ask.readyCount ?? 0)) * this.#expected(ask);
    return sum;
  }

  /** Over everything that is reserved. */
  #sum(each: (ask: Ask) => number): number {
    let sum = 0;
    for (const { ask, left } of this.#open) sum += left * each(ask);
    return sum;
  }

  #freeMemoryMib(): number {
    const host =
      Number(/^MemAvailable:\s+(\d+) kB/m.exec(readFileSync("/proc/meminfo", "latin1"))?.[1]) / 1024;
    const own = this.#parts.cgroups.headroom();
    return Math.floor(own === undefined ? host : Math.min(host, own / mib));
  }
}

function freeDiskMib(dir: string): number {
  const { bavail, bsize } = statfsSync(dir);
  return Math.floor((bavail * bsize) / mib);
}

function refuseAbove({ which, asked, inUse, limit, text, remedy }: Bound): void {
  if (inUse + asked <= limit) return;
  throw new AppError("capacity_exhausted", text, {
    details: {
      which,
      asked,
      in_use: inUse,
      limit,
      ...(which === "max_pending_forks" && { retry_after_secs: retryAfterSecs }),
    },
    // Nothing that runs could make room for more than the limit.
    remedy: asked > limit && !which.startsWith("host_") ? lessThan(remedy) : remedy,
  });
}

function lessThan(remedy: Remedy): Remedy {
  const setting = "setting" in remedy ? remedy.setting : undefined;
  return { action: "ask_for_less", ...(setting !== undefined && { setting }) };
}

/** "1 sandbox is", "3 sandboxes are" */
function counted(count: number, one: string, many?: string): string {
  return `${plural(count, one, many)} ${count === 1 ? "is" : "are"}`;
}

/** Memory that a machine with these limits may use. */
export function memoryShare(guestMib: number, limitMib: number | undefined): number {
  return Math.min(guestMib, limitMib ?? guestMib);
}

function memoryOf(sandboxes: readonly Sandbox[]): number {
  return sandboxes.reduce((sum, sandbox) => {
    const machine = sandbox.machineAtWork;
    if (!machine) return sum;
    return sum + memoryShare(machine.base.manifest.machine.memory_mib, sandbox.facts.limits?.memory_mib);
  }, 0);
}

function diskOf(sandboxes: readonly Sandbox[]): number {
  return sandboxes.reduce((sum, sandbox) => {
    if (sandbox.isDead) return sum;
    const manifest = (sandbox.machineAtWork?.base ?? sandbox.saved?.snapshot)?.manifest;
    return sum + diskShare(manifest?.files.rootfs.bytes ?? 0, sandbox.facts.limits?.disk_mib);
  }, 0);
}

/** Maximum size of a disk on the host: its limit, otherwise its size as the guest sees it. */
export function diskShare(rootfsBytes: number, limitMib: number | undefined): number {
  const size = Math.ceil(rootfsBytes / mib);
  return Math.min(size, limitMib ?? size);
}
