/**
 * A semaphore whose permits are shared fairly: a caller that asks for many does not hold up the others.
 * Callers take turns, and so do the calls of one caller; within a call permits are given in order of request.
 */

/** One call, which may ask for many permits. When the signal fires, everything it waits for rejects. */
export type Call = { readonly caller: string; readonly signal?: AbortSignal | undefined };
type Waiter = { readonly go: () => void; readonly leave: () => void };
type Line = { readonly waiters: Set<Waiter>; readonly leave: () => void };

export class FairSemaphore {
  #free: number;
  /** the first entry is next, on both levels; holds only callers and calls that wait */
  readonly #lines = new Map<string, Map<Call, Line>>();

  constructor(permits: number) {
    this.#free = permits;
  }

  get waiting(): number {
    let count = 0;
    for (const calls of this.#lines.values()) for (const { waiters } of calls.values()) count += waiters.size;
    return count;
  }

  /**
   * Disposing the result releases the permit. Rejects, without a permit, with the reason of the call's
   * signal.
   */
  async take(call: Call): Promise<Disposable> {
    call.signal?.throwIfAborted();
    if (this.#free > 0) this.#free--;
    else await this.#wait(call);
    let isTaken = true;
    return {
      [Symbol.dispose]: () => {
        if (isTaken) this.#giveBack();
        isTaken = false;
      },
    };
  }

  #wait(call: Call): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => reject(call.signal?.reason as Error);
      this.#lineOf(call).waiters.add({ go: resolve, leave });
    });
  }

  #lineOf(call: Call): Line {
    const calls = this.#lines.get(call.caller) ?? new Map<Call, Line>();
    this.#lines.set(call.caller, calls);
    const known = calls.get(call);
    if (known) return known;
    const waiters = new Set<Waiter>();
    const leave = () => {
      this.#remove(call);
      for (const waiter of waiters) waiter.leave();
    };
    const line = { waiters, leave };
    call.signal?.addEventListener("abort", leave, { once: true });
    calls.set(call, line);
    return line;
  }

  #giveBack(): void {
    const [[caller, calls] = []] = this.#lines;
    const [[call, line] = []] = calls ?? [];
    const [waiter] = line?.waiters ?? [];
    if (caller === undefined || !calls || !call || !line || !waiter) {
      this.#free++;
      return;
    }
    line.waiters.delete(waiter);
    // A call that waits for more goes to the end of the line.
    if (line.waiters.size > 0) moveToEnd(calls, call, line);
    else this.#remove(call);
    if (calls.size > 0) moveToEnd(this.#lines, caller, calls);
    waiter.go();
  }

  #remove(call: Call): void {
    const calls = this.#lines.get(call.caller);
    const line = calls?.get(call);
    if (line) call.signal?.removeEventListener("abort", line.leave);
    calls?.delete(call);
    if (calls?.size === 0) this.#lines.delete(call.caller);
  }
}

function moveToEnd<K, V>(map: Map<K, V>, key: K, value: V): void {
  map.delete(key);
  map.set(key, value);
}
