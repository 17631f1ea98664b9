/**
 * A process in the guest that writes a line every millisecond, and the gaps that its reader sees.
 *
 * A gap is measured by two clocks. The reader's clock runs while the VM is stopped: the largest time between
 * two arrivals is what an observer sees, with everything between guest and observer. The guest's clock stops
 * with the VM: a large gap by that clock means that the guest ran but the process did not, because the host's
 * cores were busy or pages had to be copied.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Sandbox } from "@forkd/sdk";
import { command, deadline, limits, poll } from "./deadline.ts";
import { median } from "./rows.ts";
import { repository } from "./run.ts";

type Beat = { sequence: number; guestMs: number; arrivedMs: number };
export type Gaps = {
  /** largest by the reader's clock, less the usual */
  seen_ms: number;
  /** largest by the guest's clock, less the usual */
  guest_ms: number;
};

const guestPath = "/usr/local/bin/heartbeat";

/** A program of bench/guest, linked statically. */
export async function compileForGuest(name: string): Promise<Uint8Array> {
  const dir = mkdtempSync(join(tmpdir(), `forkd-${name}-`));
  try {
    const program = join(dir, name);
    await command("gcc", ["-O2", "-static", "-o", program, join(repository, `bench/guest/${name}.c`)]);
    return await readFile(program);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

export async function installHeartbeat(sandbox: Sandbox, program: Uint8Array): Promise<void> {
  await sandbox.files.write(guestPath, program, { mode: "0755" });
}

export class Heartbeat implements AsyncDisposable {
  #beats: Beat[] = [];
  readonly #abort: AbortController;
  readonly #reading: Promise<void>;

  private constructor(abort: AbortController, reading: (beats: Beat[]) => Promise<void>) {
    this.#abort = abort;
    this.#reading = reading(this.#beats);
    // A failure is thrown on disposal.
    this.#reading.catch(() => undefined);
  }

  static async start(sandbox: Sandbox): Promise<Heartbeat> {
    const abort = new AbortController();
    const output = await sandbox.commands.start([guestPath], { signal: abort.signal });
    const heartbeat = new Heartbeat(abort, async (beats) => {
      let partial = "";
      for await (const event of output) {
        const arrivedMs = performance.now();
        if (event.type !== "stdout") continue;
        const lines = (partial + event.data).split("\n");
        partial = lines.pop() ?? "";
        for (const line of lines) {
          const [sequence = "", guestNs = ""] = line.split(" ");
          beats.push({ sequence: Number(sequence), guestMs: Number(guestNs) / 1e6, arrivedMs });
        }
      }
    });
    await heartbeat.beatAfter(-Infinity);
    return heartbeat;
  }

  /**
   * The largest gaps that overlap the time between two moments of performance.now(), beyond the median of all
   * gaps.
   */
  gaps(fromMs: number, toMs: number): Gaps {
    const usual = this.#pairs(-Infinity, Infinity);
    const within = this.#pairs(fromMs, toMs);
    return {
      seen_ms: Math.max(...within.map(({ seen }) => seen)) - median(usual.map(({ seen }) => seen)),
      guest_ms: Math.max(...within.map(({ guest }) => guest)) - median(usual.map(({ guest }) => guest)),
    };
  }

  /** Waits for a beat that arrives after a moment of performance.now(). */
  async beatAfter(momentMs: number): Promise<void> {
    const arrived = () => (this.#beats.at(-1)?.arrivedMs ?? -Infinity) > momentMs;
    await poll("a beat of the heartbeat", arrived, { everyMs: 2 });
  }

  #pairs(fromMs: number, toMs: number): { seen: number; guest: number }[] {
    return this.#beats.slice(1).flatMap((beat, index) => {
      const before = this.#beats[index];
      if (!before || beat.arrivedMs < fromMs || before.arrivedMs > toMs) return [];
      if (beat.sequence !== before.sequence + 1) throw new Error("A beat was lost");
      return [{ seen: beat.arrivedMs - before.arrivedMs, guest: beat.guestMs - before.guestMs }];
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await deadline("the heartbeat to end", limits.guest, this.#reading).catch((error: unknown) => {
      if (!(error instanceof Error && "code" in error && error.code === "cancelled")) throw error;
    });
  }
}
