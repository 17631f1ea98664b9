/** id → sandbox. Dead ones are kept (bounded) so that a caller can learn why. */
import { AppError } from "@forkd/contract";
import type { Logger } from "@forkd/base";
import type { EventBus } from "../observe/events.ts";
import type { Sandbox } from "./sandbox.ts";

const keptDead = 200;
const maxTimerMs = 2 ** 31 - 1;

export class Registry {
  #sandboxes = new Map<string, Sandbox>();
  #timers = new Map<string, NodeJS.Timeout>();
  readonly #log: Logger;
  readonly #events: EventBus | undefined;

  /** what follows when the time to live is over; default: it is removed */
  onExpiry: (sandbox: Sandbox) => void = (sandbox) =>
    void this.remove(sandbox.id, "sandbox.expired", "its time to live is over");

  /** called when a machine of the sandbox has begun or its times were changed */
  onSchedule: (sandbox: Sandbox) => void = () => undefined;

  constructor(log: Logger, events?: EventBus) {
    this.#log = log;
    this.#events = events;
  }

  get live(): number {
    return this.all().filter((sandbox) => sandbox.state === "running").length;
  }

  all(): Sandbox[] {
    return [...this.#sandboxes.values()];
  }

  find(id: string): Sandbox | undefined {
    return this.#sandboxes.get(id);
  }

  get(id: string): Sandbox {
    const sandbox = this.#sandboxes.get(id);
    if (sandbox) return sandbox;
    throw new AppError("sandbox_not_found", `Cannot find sandbox "${id}"`, {
      details: { id },
      remedy: { action: "list_sandboxes" },
    });
  }

  add(sandbox: Sandbox): void {
    this.#sandboxes.set(sandbox.id, sandbox);
    this.schedule(sandbox);
    sandbox.onFallBack = () => this.#events?.sandbox("sandbox.paused", sandbox.info());
    void sandbox.died.then(async (reason) => {
      if (!this.#sandboxes.has(sandbox.id)) return;
      this.#log.warn({ event: "sandbox.died", sandbox: sandbox.id, reason });
      this.#events?.sandbox("sandbox.died", sandbox.info());
      this.#clearTimer(sandbox.id);
      await this.#release(sandbox);
      this.#forgetOldDead();
    });
  }

  /** Arms the timer for the sandbox's expiry. */
  schedule(sandbox: Sandbox): void {
    this.#clearTimer(sandbox.id);
    this.onSchedule(sandbox);
    const { expiresAt } = sandbox;
    if (expiresAt === undefined) return;
    // How long that is counts by a clock that nobody sets: the wall clock may jump meanwhile.
    this.#arm(sandbox, expiresAt, performance.now() + Math.max(0, expiresAt * 1000 - Date.now()));
  }

  #arm(sandbox: Sandbox, expiresAt: number, due: number): void {
    const timer = setTimeout(
      () => {
        // Paused meanwhile, or begun anew.
        if (sandbox.expiresAt !== expiresAt) return this.schedule(sandbox);
        // A long way to go, or a timer that is a moment early.
        if (performance.now() < due) return this.#arm(sandbox, expiresAt, due);
        if (this.find(sandbox.id)) this.onExpiry(sandbox);
      },
      Math.min(Math.max(0, due - performance.now()), maxTimerMs),
    );
    timer.unref();
    this.#timers.set(sandbox.id, timer);
  }

  /** Forgets a sandbox that stays on disk. */
  forget(id: string): void {
    this.#sandboxes.delete(id);
    this.#clearTimer(id);
  }

  /** Ends the sandbox and forgets it. */
  async remove(
    id: string,
    event: "sandbox.killed" | "sandbox.expired" = "sandbox.killed",
    reason?: string,
  ): Promise<void> {
    const sandbox = this.get(id);
    this.forget(id);
    const released = this.#release(sandbox);
    const info = sandbox.info();
    this.#events?.sandbox(event, info, reason ?? info.reason);
    await released;
  }

  async #release(sandbox: Sandbox): Promise<void> {
    try {
      await sandbox[Symbol.asyncDispose]();
    } catch (error) {
      this.#log.error({ event: "sandbox.release", sandbox: sandbox.id, error });
    }
  }

  #clearTimer(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  #forgetOldDead(): void {
    const dead = this.all().filter((sandbox) => sandbox.isDead);
    for (const sandbox of dead.slice(0, Math.max(0, dead.length - keptDead))) {
      this.#sandboxes.delete(sandbox.id);
      this.#clearTimer(sandbox.id);
    }
  }
}
