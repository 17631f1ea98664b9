/** Runs one piece of work at a time, in order of request. */
export class Mutex {
  #tail: Promise<unknown> = Promise.resolve();

  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    // A failure belongs to the caller of run() and does not stop the queue.
    this.#tail = result.then(
      () => undefined,
      () => undefined,
    );
    return result;
  }
}
