/** A bucket of permits per name: `burst` at once, `perSecond` in the long run. */
import { LruMap } from "@forkd/base";

type Bucket = { permits: number; at: number };

/** Most names that are kept; a name that was dropped starts with a full bucket */
const maxNames = 10_000;

export class RateLimiter {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #buckets = new LruMap<string, Bucket>(maxNames);

  /** `perSecond` 0: no limit */
  constructor(options: { perSecond: number; burst: number }) {
    this.#perSecond = options.perSecond;
    this.#burst = Math.max(1, options.burst);
  }

  /** Takes one permit and returns 0, or returns the seconds until there is one. */
  take(name: string, now = performance.now()): number {
    if (this.#perSecond === 0) return 0;
    const known = this.#buckets.peek(name);
    const gained = known ? ((now - known.at) / 1000) * this.#perSecond : 0;
    const permits = known ? Math.min(this.#burst, known.permits + gained) : this.#burst;
    const rest = permits >= 1 ? permits - 1 : permits;
    this.#buckets.set(name, { permits: rest, at: now });
    return permits >= 1 ? 0 : (1 - permits) / this.#perSecond;
  }
}
