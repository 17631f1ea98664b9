/**
 * Work that several callers wait for at the same time runs once, and stops when the last of them gives up.
 */

/** One piece of shared work. It starts at once. */
export class SharedTask<T> {
  readonly result: Promise<T>;
  readonly #controller = new AbortController();
  #waiting = 0;

  constructor(work: (signal: AbortSignal) => Promise<T>) {
    this.result = work(this.#controller.signal);
    // A caller that gave up does not hear of the failure.
    this.result.catch(() => undefined);
  }

  /** The last caller gave up; what has begun is being undone. */
  get isAbandoned(): boolean {
    return this.#controller.signal.aborted;
  }

  /**
   * Resolves or rejects with the work, or rejects with the signal's reason. The last caller to give up aborts
   * the work and waits for its end, so that nothing of it is left; it gets the result of work that succeeds
   * nevertheless.
   */
  async wait(signal?: AbortSignal): Promise<T> {
    this.#waiting++;
    if (signal === undefined) return this.result;
    let onAbort = (): void => undefined;
    const aborted = new Promise<"aborted">((resolve) => {
      onAbort = () => resolve("aborted");
      if (signal.aborted) onAbort();
      else signal.addEventListener("abort", onAbort, { once: true });
    });
    try {
      const first = await Promise.race([this.result.then((value) => ({ value })), aborted]);
      if (first !== "aborted") return first.value;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
    this.#waiting--;
    if (this.#waiting > 0) throw signal.reason;
    this.#controller.abort(signal.reason);
    return this.result.catch(() => {
      throw signal.reason;
    });
  }
}

/** Shared work by key. */
export class SingleFlight<T> {
  readonly #running = new Map<string, SharedTask<T>>();

  async run(key: string, work: (signal: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const running = this.#running.get(key);
    // A caller that comes while abandoned work is undone starts again.
    const task = running === undefined || running.isAbandoned ? this.#start(key, work) : running;
    return task.wait(signal);
  }

  #start(key: string, work: (signal: AbortSignal) => Promise<T>): SharedTask<T> {
    const task = new SharedTask(work);
    this.#running.set(key, task);
    const forget = (): void => {
      if (this.#running.get(key) === task) this.#running.delete(key);
    };
    task.result.then(forget, forget);
    return task;
  }
}
