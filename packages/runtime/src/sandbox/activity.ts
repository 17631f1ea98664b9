/**
 * Calls into sandboxes: the one place that knows whether a sandbox is idle.
 *
 * A call is active until it has answered, a stream until it has ended. The idle time of a sandbox runs from the end of the last one,
 * by timers, which follow the monotonic clock, as those of the time to live do: a wall clock that jumps, or a host that was asleep,
 * ends nobody.
 */
import type { Sandbox } from "./sandbox.ts";

const maxTimerMs = 2 ** 31 - 1;

type Entry = { active: number; timer: NodeJS.Timeout | undefined };

export class Activity implements Disposable {
  readonly #entries = new WeakMap<Sandbox, Entry>();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #onIdle: (sandbox: Sandbox) => void;
  #closed = false;

  constructor(onIdle: (sandbox: Sandbox) => void) {
    this.#onIdle = onIdle;
  }

  /** A call begins; disposing the result ends it. */
  begin(sandbox: Sandbox): Disposable {
    const entry = this.#entry(sandbox);
    entry.active++;
    this.#clear(entry);
    sandbox.lastActive = Date.now() / 1000;
    let ended = false;
    return {
      [Symbol.dispose]: () => {
        if (ended) return;
        ended = true;
        entry.active--;
        sandbox.lastActive = Date.now() / 1000;
        this.watch(sandbox);
      },
    };
  }

  isActive(sandbox: Sandbox): boolean {
    return this.#entry(sandbox).active > 0;
  }

  /** Counts the idle time from now; to be called whenever it changes, or a machine begins. */
  watch(sandbox: Sandbox): void {
    const entry = this.#entry(sandbox);
    this.#clear(entry);
    const { idleSecs } = sandbox.timeouts;
    if (idleSecs === undefined || entry.active > 0 || sandbox.state !== "running" || this.#closed) return;
    this.#wait(sandbox, entry, idleSecs * 1000);
  }

  #wait(sandbox: Sandbox, entry: Entry, leftMs: number): void {
    const stepMs = Math.min(leftMs, maxTimerMs);
    const timer = setTimeout(() => {
      this.#clear(entry);
      if (entry.active > 0 || sandbox.state !== "running") return;
      if (leftMs > stepMs) this.#wait(sandbox, entry, leftMs - stepMs);
      else this.#onIdle(sandbox);
    }, stepMs);
    timer.unref();
    entry.timer = timer;
    this.#timers.add(timer);
  }

  #clear(entry: Entry): void {
    if (entry.timer === undefined) return;
    clearTimeout(entry.timer);
    this.#timers.delete(entry.timer);
    entry.timer = undefined;
  }

  #entry(sandbox: Sandbox): Entry {
    const known = this.#entries.get(sandbox);
    if (known) return known;
    const entry: Entry = { active: 0, timer: undefined };
    this.#entries.set(sandbox, entry);
    return entry;
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}
