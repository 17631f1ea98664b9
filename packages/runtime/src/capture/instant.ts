/** A captured instant of a machine, which is paused until resume() or the disposal. */
import { copySparse, Scope } from "@forkd/base";
import type { PageCapture } from "@forkd/machine";
import type { Draft, Manifest } from "@forkd/store";

export class Instant implements AsyncDisposable {
  readonly capture: PageCapture;
  readonly pages: number;
  readonly kernels: Manifest["kernels"];
  /** the agent had read everything that was sent */
  readonly atBoundary: boolean;
  /** state of CPU and devices */
  readonly devices: Uint8Array;
  /** qcow2 layers of the disk, bottom first, linked into the draft where that is possible */
  readonly disks: readonly string[];
  /** for each, whether it is linked into the draft */
  readonly #isLinked: readonly boolean[];
  readonly timings: Readonly<Record<string, number>>;
  /** how far the guest's clock was behind when it resumed, in milliseconds; known once it runs */
  stall: Promise<number | undefined> = Promise.resolve(undefined);
  readonly #paused: Scope;
  readonly #stoppedAt: number;
  #pauseMs: number | undefined;
  #release: Promise<void> | undefined;

  constructor(
    parts: Pick<Instant, "capture" | "pages" | "kernels" | "atBoundary" | "devices" | "disks" | "timings"> & {
      isLinked: readonly boolean[];
      paused: Scope;
      stoppedAt: number;
    },
  ) {
    this.capture = parts.capture;
    this.pages = parts.pages;
    this.kernels = parts.kernels;
    this.atBoundary = parts.atBoundary;
    this.devices = parts.devices;
    this.disks = parts.disks;
    this.#isLinked = parts.isLinked;
    this.timings = parts.timings;
    this.#paused = parts.paused;
    this.#stoppedAt = parts.stoppedAt;
  }

  /** from the stop of the CPUs to their start, or to now */
  get pauseMs(): number {
    return this.#pauseMs ?? performance.now() - this.#stoppedAt;
  }

  /** Resumes the machine. */
  async resume(): Promise<void> {
    await this.#paused[Symbol.asyncDispose]();
    if (this.#pauseMs !== undefined) return;
    this.#pauseMs = performance.now() - this.#stoppedAt;
    // A failure is reported by the next call to the capture.
    this.capture.release().catch(() => undefined);
  }

  /** Copies disk layers that could not be linked, while the source still has them. */
  async copyDisks(draft: Draft): Promise<void> {
    for (const [index, path] of this.disks.entries())
      if (!this.#isLinked[index]) await copySparse(path, draft.diskPath(index));
  }

  /** Resumes the machine if it is paused, and frees the captured pages. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#release ??= (async () => {
      try {
        await this.resume();
      } finally {
        await this.capture[Symbol.asyncDispose]();
      }
    })();
    return this.#release;
  }
}
