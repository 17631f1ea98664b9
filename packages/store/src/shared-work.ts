/** Work that several callers wait for at the same time is done once. It stops when the last of them gives up. */
type Running<T> = { result: Promise<T>; waiting: number; controller: AbortController };

export class SharedWork<T> {
  readonly #running = new Map<string, Running<T>>();

  async run(key: string, work: (signal: AbortSignal) => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const running = this.#running.get(key) ?? this.#start(key, work);
    running.waiting++;
    if (signal === undefined) return running.result;
    let giveUp: (() => void) | undefined;
    const aborted = new Promise<"aborted">((resolve) => {
      giveUp = () => resolve("aborted");
      signal.addEventListener("abort", giveUp, { once: true });
    });
    try {
      const first = await Promise.race([running.result.then((value) => ({ value })), aborted]);
      if (first !== "aborted") return first.value;
    } finally {
      if (giveUp !== undefined) signal.removeEventListener("abort", giveUp);
    }
    running.waiting--;
    if (running.waiting === 0) {
      // Who comes now starts afresh; the last one leaves when nothing of the work is left.
      this.#forget(key, running);
      running.controller.abort(signal.reason);
      await running.result.catch(() => undefined);
    }
    throw signal.reason;
  }

  #start(key: string, work: (signal: AbortSignal) => Promise<T>): Running<T> {
    const controller = new AbortController();
    const running: Running<T> = { result: work(controller.signal), waiting: 0, controller };
    this.#running.set(key, running);
    const forget = (): void => this.#forget(key, running);
    running.result.then(forget, forget);
    return running;
  }

  #forget(key: string, running: Running<T>): void {
    if (this.#running.get(key) === running) this.#running.delete(key);
  }
}
