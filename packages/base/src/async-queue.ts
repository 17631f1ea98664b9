/** Hand-over between a producer that calls back and a consumer that awaits. */

/** Wakes one waiting consumer. A notification without a waiting consumer is kept, once, for the next wait. */
export class Wakeup {
  #isPending = false;
  #resolve: (() => void) | undefined;

  notify(): void {
    if (this.#resolve === undefined) this.#isPending = true;
    this.#resolve?.();
    this.#resolve = undefined;
  }

  /**
   * Resolves at the next notification, or at once if one came since the last wait. Only one caller may wait
   * at a time.
   */
  wait(): Promise<void> {
    if (this.#isPending) {
      this.#isPending = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => (this.#resolve = resolve));
  }
}

/**
 * Items in the order of their pushes, for one reader. The reader gets every item before the end or the
 * failure.
 */
export class AsyncQueue<T> implements AsyncIterable<T> {
  readonly #items: T[] = [];
  readonly #wakeup = new Wakeup();
  #end: { error?: unknown } | undefined;

  /** the item that was pushed last, if it was not read yet */
  get newest(): T | undefined {
    return this.#items.at(-1);
  }

  push(item: T): void {
    if (this.#end) return;
    this.#items.push(item);
    this.#wakeup.notify();
  }

  /** No more items: the iteration ends when all have been read. */
  end(): void {
    this.#end ??= {};
    this.#wakeup.notify();
  }

  /** No more items: the iteration throws when all have been read. */
  fail(error: unknown): void {
    this.#end ??= { error };
    this.#wakeup.notify();
  }

  /** Removes and returns the items that were not read. */
  clear(): T[] {
    return this.#items.splice(0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    for (;;) {
      while (this.#items.length > 0) {
        const [item] = this.#items.splice(0, 1) as [T];
        yield item;
      }
      if (this.#end && "error" in this.#end) throw this.#end.error;
      if (this.#end) return;
      await this.#wakeup.wait();
    }
  }
}
