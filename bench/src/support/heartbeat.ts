/**
 * A process in the guest that writes a line every millisecond, and what its reader sees of a pause.
 *
 * Two clocks tell of a gap. The reader's runs on while the VM is stopped: the largest time between two arrivals is what
 * an observer sees, with everything that lies between guest and observer. The guest's own stands still with the VM: by
 * it a pause takes no time at all, and a large gap means that the guest ran but the process did not, as when the host's
 * cores are taken or pages have to be copied.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { runProgram } from "@forkd/base";
import type { Sandbox } from "@forkd/sdk";
import { repository } from "./daemon.ts";
import { median } from "./rows.ts";

type Beat = { sequence: number; guestMs: number; arrivedMs: number };
export type Gaps = {
  /** largest by the reader's clock, less the usual */
  seen_ms: number;
  /** largest by the guest's clock, less the usual */
  guest_ms: number;
};

const patienceMs = 10_000;
const guestPath = "/usr/local/bin/heartbeat";

/** The program, linked statically. */
export async function compileHeartbeat(): Promise<Uint8Array> {
  const dir = mkdtempSync(join(tmpdir(), "forkd-heartbeat-"));
  try {
    const program = join(dir, "heartbeat");
    await runProgram("gcc", ["-O2", "-static", "-o", program, join(repository, "bench/guest/heartbeat.c")]);
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
    // Its failure is met when it is stopped.
    this.#reading.catch(() => undefined);
  }

  static async start(sandbox: Sandbox): Promise<Heartbeat> {
    const abort = new AbortController();
    const command = await sandbox.commands.start([guestPath], { signal: abort.signal });
    return new Heartbeat(abort, async (beats) => {
      let partial = "";
      for await (const event of command) {
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
  }

  /** The largest gaps that overlap the time between two moments of performance.now(), beyond the median of all gaps. */
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
    const deadline = performance.now() + patienceMs;
    while ((this.#beats.at(-1)?.arrivedMs ?? -Infinity) <= momentMs) {
      if (performance.now() > deadline) throw new Error("The heartbeat stopped");
      await sleep(2);
    }
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
    await this.#reading.catch((error: unknown) => {
      if (!(error instanceof Error && "code" in error && error.code === "cancelled")) throw error;
    });
  }
}
