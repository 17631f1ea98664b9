/** An endless answer that can be closed at any time. */

/** Values as they arrive. Leaving the loop, `return()` or `await using` closes the stream. */
export class Stream<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  readonly #source: AsyncGenerator<T>;
  readonly #closing = new AbortController();

  /** @internal */
  constructor(open: (signal: AbortSignal) => AsyncGenerator<T>, signal?: AbortSignal) {
    const own = this.#closing.signal;
    this.#source = open(signal ? AbortSignal.any([signal, own]) : own);
  }

  /** Resolves to the next value; after `return()` to the end, also if it was called before. */
  async next(): Promise<IteratorResult<T, undefined>> {
    try {
      const { done, value } = await this.#source.next();
      return done === true ? { done, value: undefined } : { done: false, value };
    } catch (error) {
      if (!this.#closing.signal.aborted) throw error;
      return { done: true, value: undefined };
    }
  }

  /** Closes the stream. */
  async return(): Promise<IteratorResult<T, undefined>> {
    this.#closing.abort();
    // The source may report that it was aborted.
    await this.#source.return(undefined).catch(() => undefined);
    return { done: true, value: undefined };
  }

  /** Returns the stream itself: it can be iterated once. */
  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Closes the stream at the end of an `await using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}
