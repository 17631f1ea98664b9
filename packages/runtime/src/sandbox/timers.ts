/**
 * When a sandbox times out. There are two timers, which run only while it has a machine:
 *
 *   time to live (`ttlSecs`)   from the start of the machine until `expiresAt`           ExpiryTimers
 *   idle timeout (`idleSecs`)  from the end of the last call; not during a call          Activity
 *
 * What happens then (`onTimeout`: kill or pause) is up to operations/timeouts.ts. Both timers follow the
 * monotonic clock, so a wall clock that jumps or a host that was suspended ends no sandbox.
 */
import { longTimer } from "@forkd/base";
import type { Sandbox } from "./sandbox.ts";

/** One timer per sandbox for the end of its time to live. */
export class ExpiryTimers {
  readonly #timers = new Map<string, Disposable>();
  readonly #onExpiry: (sandbox: Sandbox) => void;

  constructor(onExpiry: (sandbox: Sandbox) => void) {
    this.#onExpiry = onExpiry;
  }

  /** Arms the timer for `expiresAt` as it is now. */
  arm(sandbox: Sandbox): void {
    this.clear(sandbox.id);
    const { expiresAt } = sandbox;
    if (expiresAt === undefined) return;
    const onDue = (): void => {
      // It was paused or got another machine in the meantime.
      if (sandbox.expiresAt !== expiresAt) this.arm(sandbox);
      else this.#onExpiry(sandbox);
    };
    this.#timers.set(sandbox.id, longTimer(expiresAt * 1000 - Date.now(), onDue));
  }

  clear(id: string): void {
    this.#timers.get(id)?.[Symbol.dispose]();
    this.#timers.delete(id);
  }
}

type Entry = { active: number; timer: Disposable | undefined };

/**
 * Counts the open calls into each sandbox, and times how long it has had none. A stream is open until it has
 * ended.
 */
export class Activity implements Disposable {
  readonly #entries = new WeakMap<Sandbox, Entry>();
  readonly #timers = new Set<Disposable>();
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

  /**
   * Counts the idle time from now, at least `atLeastSecs`. Call it when `idleSecs` was changed or a machine has
   * started.
   */
  watch(sandbox: Sandbox, atLeastSecs = 0): void {
    const entry = this.#entry(sandbox);
    this.#clear(entry);
    const { idleSecs } = sandbox.timeouts;
    if (idleSecs === undefined || entry.active > 0 || sandbox.state !== "running" || this.#closed) return;
    entry.timer = longTimer(Math.max(idleSecs, atLeastSecs) * 1000, () => {
      this.#clear(entry);
      if (entry.active === 0 && sandbox.state === "running") this.#onIdle(sandbox);
    });
    this.#timers.add(entry.timer);
  }

  #clear(entry: Entry): void {
    if (entry.timer === undefined) return;
    entry.timer[Symbol.dispose]();
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
    for (const timer of this.#timers) timer[Symbol.dispose]();
    this.#timers.clear();
  }
}
