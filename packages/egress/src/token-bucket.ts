/** A rate with a burst. The clock is given, so that tests need not wait. */
export class TokenBucket {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #nowMs: () => number;
  #tokens: number;
  #atMs: number;

  constructor(perSecond: number, burst: number, nowMs: () => number = () => performance.now()) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#nowMs = nowMs;
    this.#tokens = burst;
    this.#atMs = nowMs();
  }

  /** Takes tokens, also those that are not there yet. Returns how long to wait until the debt is paid, in ms. */
  take(count: number): number {
    this.#refill();
    this.#tokens -= count;
    return this.#tokens >= 0 ? 0 : (-this.#tokens / this.#perSecond) * 1000;
  }

  /** Takes tokens only if they are there. */
  tryTake(count = 1): boolean {
    this.#refill();
    if (this.#tokens < count) return false;
    this.#tokens -= count;
    return true;
  }

  #refill(): void {
    const now = this.#nowMs();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#atMs) / 1000) * this.#perSecond);
    this.#atMs = now;
  }
}
