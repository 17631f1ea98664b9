/** A value that is expensive to make: it is made at most once at a time and kept. */
export class CachedValue<T> {
  readonly #make: () => Promise<T>;
  #last: { value: T; atMs: number } | undefined;
  #making: Promise<T> | undefined;

  constructor(make: () => Promise<T>) {
    this.#make = make;
  }

  /** The value, at most this old. */
  async fresh(maxAgeMs: number): Promise<T> {
    if (this.#last && performance.now() - this.#last.atMs < maxAgeMs) return this.#last.value;
    return this.#renew();
  }

  /**
   * The value as it is known, without waiting. If it is older than that it is renewed for the next caller.
   * Only the first waits.
   */
  async known(maxAgeMs: number): Promise<T> {
    if (this.#last === undefined) return this.#renew();
    if (performance.now() - this.#last.atMs >= maxAgeMs) this.#renew().catch(() => undefined);
    return this.#last.value;
  }

  #renew(): Promise<T> {
    this.#making ??= (async () => {
      try {
        const value = await this.#make();
        this.#last = { value, atMs: performance.now() };
        return value;
      } finally {
        this.#making = undefined;
      }
    })();
    return this.#making;
  }
}
