/** A bucket of permits per name: `burst` at once, `perSecond` in the long run. */

type Bucket = { permits: number; at: number };

/** Names remembered at most; the least recently used are forgotten, which gives them a full bucket */
const maxNames = 10_000;

export class RateLimiter {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #buckets = new Map<string, Bucket>();

  /** `perSecond` 0: no limit */
  constructor(options: { perSecond: number; burst: number }) {
    this.#perSecond = options.perSecond;
    this.#burst = Math.max(1, options.burst);
  }

  /** Takes one permit. 0, or how many seconds there will be none. */
  take(name: string, now = performance.now()): number {
    if (this.#perSecond === 0) return 0;
    const known = this.#buckets.get(name);
    const gained = known ? ((now - known.at) / 1000) * this.#perSecond : 0;
    const permits = known ? Math.min(this.#burst, known.permits + gained) : this.#burst;
    const rest = permits >= 1 ? permits - 1 : permits;
    this.#buckets.delete(name);
    this.#buckets.set(name, { permits: rest, at: now });
    if (this.#buckets.size > maxNames) this.#forgetOldest();
    return permits >= 1 ? 0 : (1 - permits) / this.#perSecond;
  }

  #forgetOldest(): void {
    for (const name of this.#buckets.keys()) {
      this.#buckets.delete(name);
      return;
    }
  }
}
