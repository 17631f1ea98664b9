/**
 * When a sandbox times out. There are two timers, which run only while it has a machine:
 *
 *   time to live (`ttlSecs`)   from the start of the machine until `expiresAt`           ExpiryTimers
 *   idle timeout (`idleSecs`)  from the end of the last call; not during a call          Activity
 *
 * What happens then (`onTimeout`: kill or pause) is up to operations/timeouts.ts. Both timers follow the
 * monotonic clock, so a wall clock that jumps or a host that was suspended ends no sandbox.
 */
import type { Sandbox } from "./sandbox.ts";

/** the longest delay of setTimeout() */
const maxTimerMs = 2 ** 31 - 1;

/** One timer per sandbox for the end of its time to live. */
export class ExpiryTimers {
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #onExpiry: (sandbox: Sandbox) => void;

  constructor(onExpiry: (sandbox: Sandbox) => void) {
    this.#onExpiry = onExpiry;
  }

  /** Arms the timer for `expiresAt` as it is now. */
  arm(sandbox: Sandbox): void {
    this.clear(sandbox.id);
    const { expiresAt } = sandbox;
    if (expiresAt === undefined) return;
    this.#wait(sandbox, expiresAt, performance.now() + Math.max(0, expiresAt * 1000 - Date.now()));
  }

  #wait(sandbox: Sandbox, expiresAt: number, due: number): void {
    const timer = setTimeout(
      () => {
        // It was paused or got another machine in the meantime.
        if (sandbox.expiresAt !== expiresAt) return this.arm(sandbox);
        // The delay was longer than one timer, or the timer fired a moment early.
        if (performance.now() < due) return this.#wait(sandbox, expiresAt, due);
        this.#onExpiry(sandbox);
      },
      Math.min(Math.max(0, due - performance.now()), maxTimerMs),
    );
    timer.unref();
    this.#timers.set(sandbox.id, timer);
  }

  clear(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }
}

type Entry = { active: number; timer: NodeJS.Timeout | undefined };

/**
 * Counts the open calls into each sandbox, and times how long it has had none. A stream is open until it has
 * ended.
 */
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
    sandbox.touch();
    let ended = false;
    return {
      [Symbol.dispose]: () => {
        if (ended) return;
        ended = true;
        entry.active--;
        sandbox.touch();
        this.watch(sandbox);
      },
    };
  }

  isActive(sandbox: Sandbox): boolean {
    return this.#entry(sandbox).active > 0;
  }

  /** Counts the idle time from now. Call it when `idleSecs` was changed or a machine has started. */
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
