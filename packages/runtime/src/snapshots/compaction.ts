/**
 * Keeps chains short in the background. When a branch makes a chain long, the daemon keeps the whole memory of
 * that snapshot beside its layer, so that the next layers count from there. The snapshot stays the same one:
 * sandboxes that run from it, layers over it and rewinds to it are not affected.
 *
 * One compaction runs at a time, when no branch or fork is in progress. It gives up when a caller needs its
 * capacity or the daemon stops; the next branch asks for it again. If none succeeds until the chain is at its
 * limit, that branch saves all of the memory itself (capture/layer-base.ts).
 */
import { setTimeout as sleep } from "node:timers/promises";
import { AppError, toAppError } from "@forkd/contract";
import type { Logger } from "@forkd/base";
import type { Store, StoredSnapshot } from "@forkd/store";
import type { Admission, Reservation } from "../admission/admission.ts";
import type { OpenBranches } from "../capture/open-branches.ts";
import type { RuntimeConfig } from "../config.ts";
import type { EventBus } from "../observe/events.ts";
import type { RuntimeMetrics } from "../observe/metrics.ts";
import type { OpenWork } from "../open-work.ts";
import type { ImageRefs } from "./image-refs.ts";

const maxWaiting = 64;
const quietStepMs = 100;
/** A host that is never quiet does not stop compactions. */
const maxQuietSteps = 100;

type Parts = {
  readonly admission: Admission;
  readonly branches: OpenBranches;
  readonly config: Pick<RuntimeConfig, "compactDepth">;
  readonly events: EventBus;
  readonly images: ImageRefs;
  readonly log: Logger;
  readonly metrics: RuntimeMetrics;
  readonly store: Store;
  readonly work: OpenWork;
};

export class Compaction {
  readonly #parts: Parts;
  /** by id, the oldest first */
  readonly #waiting = new Map<string, StoredSnapshot>();
  #loop: Promise<void> | undefined;
  #current: { stop: AbortController; capacity: Reservation } | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Call it when a layered snapshot was published. Never rejects. */
  consider(snapshot: StoredSnapshot): void {
    if (this.#parts.config.compactDepth === 0 || !snapshot.manifest.parent) return;
    this.#waiting.set(snapshot.id, snapshot);
    for (const oldest of this.#waiting.keys()) {
      if (this.#waiting.size <= maxWaiting) break;
      this.#waiting.delete(oldest);
    }
    this.#loop ??= this.#run().finally(() => (this.#loop = undefined));
  }

  /** Stops the compaction that runs and releases its capacity. Returns false if none runs. */
  yield(): boolean {
    const current = this.#current;
    if (!current) return false;
    this.#current = undefined;
    current.stop.abort(new AppError("cancelled", "A caller needs the capacity"));
    current.capacity[Symbol.dispose]();
    return true;
  }

  /** Resolves when nothing waits or runs. */
  async idle(): Promise<void> {
    await this.#loop;
  }

  async #run(): Promise<void> {
    for (;;) {
      const [next] = this.#waiting.values();
      if (!next || this.#parts.work.isClosing) return;
      this.#waiting.delete(next.id);
      await this.#try(next);
    }
  }

  async #try(snapshot: StoredSnapshot): Promise<void> {
    const { log, metrics, work, events } = this.#parts;
    const startedAt = performance.now();
    const report = (outcome: string, more: object = {}) => {
      metrics.compactions.add({ outcome });
      const durationMs = Math.round(performance.now() - startedAt);
      log[outcome === "failed" ? "warn" : "info"]({
        event: "snapshot.compacted",
        outcome,
        tag: snapshot.tag,
        durationMs,
        ...more,
      });
    };
    try {
      if (!(await work.whileOpen(undefined, (signal) => this.#compact(snapshot, signal)))) return;
      events.snapshot("snapshot.compacted", snapshot.tag, { status: "ready" });
      report("ok");
    } catch (error) {
      const { code, message } = toAppError(error);
      const isGivenUp = ["cancelled", "daemon_stopping", "capacity_exhausted"].includes(code);
      report(isGivenUp ? "given_up" : "failed", { reason: message });
    }
  }

  /** Returns false if there is nothing to do. */
  async #compact(snapshot: StoredSnapshot, closing: AbortSignal): Promise<boolean> {
    const { admission, images, store } = this.#parts;
    // Cheap, so that a short chain does not wait.
    if (!(await this.#isLong(snapshot, closing))) return false;
    await this.#quiet(closing);
    if (!(await store.isCurrent(snapshot)) || !(await this.#isLong(snapshot, closing))) return false;
    using capacity = admission.admit({
      what: `compact the chain of "${snapshot.tag}"`,
      n: 1,
      memoryMib: 0,
      expectMib: 0,
      diskMib: 0,
      writesMib: snapshot.manifest.machine.memory_mib,
      isSandbox: false,
      isBackground: true,
    });
    const stop = new AbortController();
    const current = { stop, capacity };
    this.#current = current;
    const release = images.hold(snapshot.id);
    try {
      return await store.keepImage(snapshot, { signal: AbortSignal.any([closing, stop.signal]) });
    } finally {
      release();
      if (this.#current === current) this.#current = undefined;
    }
  }

  async #isLong(snapshot: StoredSnapshot, signal: AbortSignal): Promise<boolean> {
    const { config, store } = this.#parts;
    const { chain } = await store.memorySource(snapshot, { signal });
    return chain.length >= config.compactDepth;
  }

  async #quiet(signal: AbortSignal): Promise<void> {
    const { admission, branches } = this.#parts;
    for (let step = 0; step < maxQuietSteps && (branches.all.length > 0 || admission.pending > 0); step++)
      await sleep(quietStepMs, undefined, { signal });
  }
}
