/** The result of a call that is awaited for its end, or iterated for what happens until then. */

/** Opens the events, and makes the result of them. */
type Source<Result, Event> = {
  /** Reads to the end. */
  readonly result: () => Promise<Result>;
  /** Reads step by step. */
  readonly events: () => AsyncGenerator<Event>;
};

/**
 * Await it for the result, or iterate it (`for await`) for events as they arrive; leaving the loop early ends it.
 * Use one of the two.
 */
export class Run<Result, Event> implements Promise<Result>, AsyncIterable<Event> {
  readonly [Symbol.toStringTag] = "Run";
  readonly #source: Promise<Source<Result, Event>>;
  #result: Promise<Result> | undefined;
  #isIterated = false;

  /** @internal */
  constructor(source: Promise<Source<Result, Event>>) {
    this.#source = source;
    // A caller that awaits or iterates gets the failure; for one that does neither, Node would exit.
    source.catch(() => undefined);
  }

  /** Waits for the result, as `await` does. */
  // oxlint-disable-next-line unicorn/no-thenable -- a run is a promise too; reading begins when it is awaited
  then<A = Result, B = never>(
    onResult?: ((result: Result) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#isIterated)
      return Promise.reject(new TypeError("A run is awaited or iterated, not both")).then(onResult, onError);
    this.#result ??= this.#source.then((source) => source.result());
    return this.#result.then(onResult, onError);
  }

  /** Handles a failure. */
  catch<B = never>(onError?: ((error: unknown) => B | PromiseLike<B>) | null): Promise<Result | B> {
    return this.then(undefined, onError);
  }

  /** Calls a function at the end. */
  finally(onEnd?: (() => void) | null): Promise<Result> {
    return this.then().finally(onEnd);
  }

  /** Iterates the events; works once. */
  [Symbol.asyncIterator](): AsyncGenerator<Event> {
    if (this.#isIterated || this.#result)
      throw new TypeError("A run is awaited or iterated, once and not both");
    this.#isIterated = true;
    return iterate(this.#source);
  }
}

async function* iterate<Event>(source: Promise<Source<unknown, Event>>): AsyncGenerator<Event> {
  yield* (await source).events();
}
