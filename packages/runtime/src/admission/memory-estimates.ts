/** Estimates the memory of a new child of a snapshot from its running ones. */
import { LruMap } from "@forkd/base";
import { memoryUse } from "@forkd/machine";

const mib = 1024 * 1024;
/** not more often: each reading makes the kernel walk all pages of the process */
const everyMs = 5000;
const maxKnown = 1000;

export class MemoryEstimates {
  readonly #known = new LruMap<string, { mib: number; at: number }>(maxKnown);

  /** The mean so far, or undefined without a measurement. */
  of(snapshotId: string): number | undefined {
    const found = this.#known.peek(snapshotId);
    return found && Number.isFinite(found.mib) ? Math.ceil(found.mib) : undefined;
  }

  /** Measures one child in the background. Never rejects. */
  async learn(snapshotId: string, pid: number): Promise<void> {
    const before = this.#known.peek(snapshotId);
    const now = performance.now();
    if (before && now - before.at < everyMs) return;
    this.#known.set(snapshotId, { mib: before?.mib ?? Number.NaN, at: now });
    const use = await memoryUse(pid).catch(() => undefined);
    if (!use) return;
    const seen = use.privateBytes / mib;
    const mean = before && Number.isFinite(before.mib) ? (before.mib * 3 + seen) / 4 : seen;
    this.#known.set(snapshotId, { mib: mean, at: now });
  }
}
