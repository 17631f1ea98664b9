/** How many children of a snapshot were asked for at once lately. Pure but for the clock that it is given. */

/** children that are asked for within this time count as asked for at once */
const burstMs = 10_000;
const memoryMs = 10 * 60_000;
/** requests within this time are one entry, which bounds the list */
const entryMs = 1000;

export class Demand {
  #entries: { at: number; n: number }[] = [];

  add(n: number, now: number): void {
    this.#forget(now);
    const last = this.#entries.at(-1);
    if (last && now - last.at < entryMs) last.n += n;
    else this.#entries.push({ at: now, n });
  }

  /** The largest burst of the last minutes. */
  peak(now: number): number {
    this.#forget(now);
    let peak = 0;
    let sum = 0;
    let first = 0;
    for (const { at, n } of this.#entries) {
      sum += n;
      for (let old = this.#entries[first]; old && at - old.at >= burstMs; old = this.#entries[++first])
        sum -= old.n;
      peak = Math.max(peak, sum);
    }
    return peak;
  }

  #forget(now: number): void {
    const kept = this.#entries.findIndex(({ at }) => now - at < memoryMs);
    if (kept !== 0) this.#entries = kept < 0 ? [] : this.#entries.slice(kept);
  }
}
