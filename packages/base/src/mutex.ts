/** Runs one piece of work at a time, in order of asking. */
export class Mutex {
  #tail: Promise<unknown> = Promise.resolve();

  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    // The queue goes on after a failure; the failure belongs to the caller of run().
    this.#tail = result.then(
      () => undefined,
      () => undefined,
    );
    return result;
  }
}
