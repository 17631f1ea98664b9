/** Counts the bytes of one machine and holds it to its rate and its total. */
import { maxTimerMs } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { TokenBucket } from "../token-bucket.ts";
import type { NetworkLimits } from "../types.ts";
import type { Direction } from "./intercept.ts";

/** At most this part of a second may pass at once. */
const burstSeconds = 0.25;
const leastBurst = 64 * 1024;

export class Meter {
  readonly #nowMs: () => number;
  readonly #used: Record<Direction, number>;
  readonly #waiting = new Set<() => void>();
  #buckets: Record<Direction, TokenBucket> | undefined;
  #maxBytes: number | undefined;

  constructor(
    limits: NetworkLimits,
    used = { in: 0, out: 0 },
    nowMs: () => number = () => performance.now(),
  ) {
    this.#nowMs = nowMs;
    this.#used = { ...used };
    this.setLimits(limits);
  }

  get used(): Readonly<Record<Direction, number>> {
    return this.#used;
  }

  get isUsedUp(): boolean {
    return this.#maxBytes !== undefined && this.#used.in + this.#used.out >= this.#maxBytes;
  }

  setLimits({ bps, bytes }: NetworkLimits): void {
    const bucket = (rate: number): TokenBucket =>
      new TokenBucket(rate, Math.max(leastBurst, rate * burstSeconds), this.#nowMs);
    this.#buckets = bps === undefined ? undefined : { in: bucket(bps), out: bucket(bps) };
    this.#maxBytes = bytes;
    this.release();
  }

  /** As InterceptContext.charge(). */
  charge(direction: Direction, bytes: number): Promise<void> | undefined {
    this.#used[direction] += bytes;
    if (this.isUsedUp) throw new AppError("forbidden", "The machine has used up its bytes");
    const waitMs = this.#buckets?.[direction].take(bytes) ?? 0;
    return waitMs === 0 ? undefined : this.#wait(waitMs);
  }

  /** For datagrams, which are dropped and not delayed. */
  tryCharge(direction: Direction, bytes: number): boolean {
    if (this.isUsedUp || this.#buckets?.[direction].tryTake(bytes) === false) return false;
    this.#used[direction] += bytes;
    return true;
  }

  /** Ends all waits, because the limits are others or the machine is gone. */
  release(): void {
    for (const go of this.#waiting) go();
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const go = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(go);
        resolve();
      };
      const timer = setTimeout(go, Math.min(ms, maxTimerMs));
      this.#waiting.add(go);
    });
  }
}
