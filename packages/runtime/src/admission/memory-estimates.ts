/** What children of a snapshot take of the host, from those that run. */
import { memoryUse } from "@forkd/machine";

const mib = 1024 * 1024;
/** reading it makes the kernel walk all pages of the process */
const everyMs = 5000;
const maxKnown = 1000;

export class MemoryEstimates {
  readonly #known = new Map<string, { mib: number; at: number }>();

  /** Mean of what was seen, or undefined if nothing was. */
  of(snapshotId: string): number | undefined {
    const found = this.#known.get(snapshotId);
    return found && Number.isFinite(found.mib) ? Math.ceil(found.mib) : undefined;
  }

  /** Looks at one child. Nobody waits for it, and it never rejects. */
  async learn(snapshotId: string, pid: number): Promise<void> {
    const before = this.#known.get(snapshotId);
    const now = performance.now();
    if (before && now - before.at < everyMs) return;
    this.#known.set(snapshotId, { mib: before?.mib ?? Number.NaN, at: now });
    const use = await memoryUse(pid).catch(() => undefined);
    if (!use) return;
    const seen = use.privateBytes / mib;
    const mean = before && Number.isFinite(before.mib) ? (before.mib * 3 + seen) / 4 : seen;
    this.#known.delete(snapshotId);
    this.#known.set(snapshotId, { mib: mean, at: now });
    const [oldest] = this.#known.keys();
    if (oldest !== undefined && this.#known.size > maxKnown) this.#known.delete(oldest);
  }
}
