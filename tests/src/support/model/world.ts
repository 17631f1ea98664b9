/**
 * A daemon that is killed and started again, on a disk that fills and empties, with a clock that jumps, while
 * others use it. Knows which failures of a call these faults excuse.
 */
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runProgram, Scope } from "@forkd/base";
import { ForkdError, type Forkd } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import { endDaemon, startDaemon, type TestDaemon } from "../daemon.ts";
import { repository } from "../places.ts";
import type { Random } from "../random.ts";
import { fillerPath, fillUp, ownDisk } from "../small-disk.ts";
import { testDir } from "../test-dir.ts";
import { GuestDiskFailed, makeLedger } from "./ledger.ts";

export const baseTag = "ledger";
const mib = 1024 * 1024;

// A branch without waiting ends with the daemon that writes it. What was acknowledged must still be
// there: settle() compares.
const lostDaemon = new Set([
  "daemon_unreachable",
  "daemon_stopping",
  "cancelled",
  "snapshot_not_found",
  "snapshot_failed",
]);
const fullDisk = new Set([
  "disk_full",
  "capacity_exhausted",
  "snapshot_failed",
  "snapshot_not_found",
  "engine_failed",
  "agent_unreachable",
  "guest_refused",
  "sandbox_dead",
]);

/** A moment in the history of faults, to compare a later one with. */
export type Moment = { readonly kills: number; readonly fills: number };

export class World implements AsyncDisposable {
  readonly counts: Record<string, number> = {};
  readonly #trace: string[] = [];
  readonly #dir: string;
  readonly #dataDir: string;
  readonly #scope: Scope;
  readonly #startedAt = performance.now();
  readonly #started: TestDaemon[] = [];
  #daemon: TestDaemon | undefined;
  #kills = 0;
  #fills = 0;
  #filler: string | undefined;

  private constructor(dir: string, dataDir: string, scope: Scope) {
    this.#dir = dir;
    this.#dataDir = dataDir;
    this.#scope = scope;
  }

  static async open(diskSize: string): Promise<World> {
    await using scope = new Scope();
    const { path } = scope.use(await testDir());
    const { dataDir } = scope.use(await ownDisk(path, { tmpfs: diskSize }, ["tiny"]));
    const source = join(repository, "tests/src/support/model/clock-shim.c");
    const flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"];
    await runProgram("gcc", [...flags, "-o", join(path, "clock.so"), source]);
    const world = new World(path, dataDir, scope.keep());
    try {
      world.setClock(0);
      await world.#start();
      await makeLedger(world.forkd, { base: "tiny", tag: baseTag, dir: path });
      return world;
    } catch (error) {
      await world[Symbol.asyncDispose]();
      throw error;
    }
  }

  get forkd(): Forkd {
    if (!this.#daemon) throw new ForkdError("daemon_unreachable", "No daemon runs");
    return this.#daemon.forkd;
  }

  get now(): Moment {
    return { kills: this.#kills, fills: this.#fills };
  }

  /** Notes what is done, for the report of a failure, and counts it. */
  note(what: string, detail = ""): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
    const seconds = ((performance.now() - this.#startedAt) / 1000).toFixed(2);
    this.#trace.push(`${seconds} ${what} ${detail}`);
    if (this.#trace.length > 120) this.#trace.shift();
  }

  get trace(): string {
    return this.#trace.join("\n");
  }

  /** A fault since `moment` explains this failure. */
  excuses(error: unknown, moment: Moment): boolean {
    if (this.diskWasFull(moment) && error instanceof GuestDiskFailed) return true;
    if (!(error instanceof ForkdError)) return false;
    if (this.#kills !== moment.kills && lostDaemon.has(error.code)) return true;
    return this.diskWasFull(moment) && fullDisk.has(error.code);
  }

  diskWasFull(moment: Moment): boolean {
    return this.#filler !== undefined || this.#fills !== moment.fills;
  }

  daemonWasKilled(moment: Moment): boolean {
    return this.#kills !== moment.kills;
  }

  /** Resolves when there is a daemon to ask. */
  async up(): Promise<void> {
    await until("the daemon runs again", () => this.#daemon !== undefined);
  }

  async killDaemon(): Promise<void> {
    const daemon = this.#daemon;
    if (!daemon) return;
    this.note("kill daemon");
    this.#kills++;
    this.#daemon = undefined;
    await endDaemon(daemon, "SIGKILL");
    await this.#start();
    this.note("daemon runs again");
  }

  /** Leaves little room for `ms`. */
  async fillDisk(ms: number, random: Random): Promise<void> {
    this.note("fill disk");
    this.#fills++;
    // Set before the first write: the disk may be full, and a call may fail, while the file still grows.
    this.#filler = fillerPath(this.#dataDir);
    await fillUp(this.#dataDir, random.below(4) * mib);
    if (random.chance(0.3)) await this.killDaemon();
    await new Promise((resolve) => setTimeout(resolve, ms));
    rmSync(this.#filler);
    this.#fills++;
    this.#filler = undefined;
    this.note("empty disk");
  }

  /** Sets the daemon's wall clock apart from the host's. */
  setClock(offsetSecs: number): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(offsetSecs));
    const path = join(this.#dir, "clock");
    // In place: the daemon has mapped the file.
    writeFileSync(path, bytes, { flag: existsSync(path) ? "r+" : "w" });
    this.note("set clock", `${offsetSecs} s`);
  }

  async #start(): Promise<void> {
    const daemon = await startDaemon({
      dataDir: this.#dataDir,
      env: {
        FORKD_RUNTIME_DIR: join(this.#dir, "run"),
        FORKD_TEST_CLOCK: join(this.#dir, "clock"),
        LD_PRELOAD: join(this.#dir, "clock.so"),
        FORKD_MEMORY_CACHE_MIB: "256",
        FORKD_MAX_SANDBOXES: "24",
      },
    });
    this.#started.push(daemon);
    this.#daemon = daemon;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#filler !== undefined) rmSync(this.#filler, { force: true });
    this.setClock(0);
    // Sandboxes that a killed daemon has left are stopped by the next one.
    if (!this.#daemon) await this.#start();
    for (const daemon of this.#started.reverse()) await daemon[Symbol.asyncDispose]();
    await this.#scope[Symbol.asyncDispose]();
  }
}
