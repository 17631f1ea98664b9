/** The words for a transfer: how much of it is done, how fast it is, and how long it still takes. */
import { formatBytes, formatSeconds } from "./table.ts";

/** The rate is that of the last seconds, so that it follows a network that gets slower. */
const windowMs = 5000;
/** Before that a rate says little. */
const warmUpMs = 1000;

export class TransferRate {
  readonly #now: () => number;
  readonly #samples: { at: number; bytes: number }[] = [];

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#samples.push({ at: now(), bytes: 0 });
  }

  /** "120 MiB of 365 MiB, 34.1 MiB/s, 7s left"; without a total "120 MiB, 34.1 MiB/s". */
  words(bytes: number, total?: number): string {
    const at = this.#now();
    this.#samples.push({ at, bytes });
    while ((this.#samples[1]?.at ?? at) < at - windowMs) this.#samples.shift();
    const first = this.#samples[0] ?? { at, bytes };
    const amount =
      total === undefined ? formatBytes(bytes) : `${formatBytes(bytes)} of ${formatBytes(total)}`;
    const elapsed = at - first.at;
    if (elapsed < warmUpMs || bytes <= first.bytes) return amount;
    const perMs = (bytes - first.bytes) / elapsed;
    const rate = `${amount}, ${formatBytes(perMs * 1000)}/s`;
    if (total === undefined) return rate;
    return `${rate}, ${formatSeconds(Math.ceil((total - bytes) / perMs / 1000))} left`;
  }
}
