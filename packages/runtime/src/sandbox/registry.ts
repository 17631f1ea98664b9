/** id → sandbox. Dead ones are kept, up to a limit, so that a caller can learn why. */
import { AppError } from "@forkd/contract";
import type { Logger } from "@forkd/base";
import type { EventBus } from "../observe/events.ts";
import type { Sandbox } from "./sandbox.ts";
import { ExpiryTimers } from "./timers.ts";

const keptDead = 200;

export class Registry {
  #sandboxes = new Map<string, Sandbox>();
  readonly #timers = new ExpiryTimers((sandbox) => {
    if (this.find(sandbox.id)) this.onExpiry(sandbox);
  });
  readonly #log: Logger;
  readonly #events: EventBus | undefined;

  /** called when the time to live of a sandbox is over; default: removes it */
  onExpiry: (sandbox: Sandbox) => void = (sandbox) =>
    void this.remove(sandbox.id, "sandbox.expired", "its time to live is over");

  /** called when a machine of the sandbox has started or its timeouts were changed */
  onSchedule: (sandbox: Sandbox) => void = () => undefined;

  /** called when a sandbox has ended unasked, before its record is removed */
  onEnd: (sandbox: Sandbox) => Promise<void> = async () => undefined;

  /** called when a dead sandbox is removed */
  onEndedRemoved: (id: string) => Promise<void> = async () => undefined;

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
    sandbox.onRevert(() => this.#events?.sandbox("sandbox.paused", sandbox.info()));
    void sandbox.died.then(async (reason) => {
      if (!this.#sandboxes.has(sandbox.id)) return;
      this.#log.warn({ event: "sandbox.died", sandbox: sandbox.id, reason });
      this.#events?.sandbox("sandbox.died", sandbox.info());
      this.#timers.clear(sandbox.id);
      await this.onEnd(sandbox).catch((error: unknown) =>
        this.#log.error({ event: "sandbox.died", outcome: "not recorded", sandbox: sandbox.id, error }),
      );
      // It was killed or rewound while it was recorded.
      if (this.#sandboxes.get(sandbox.id) !== sandbox) await this.onEndedRemoved(sandbox.id);
      await this.#dispose(sandbox);
      this.#forgetOldDead();
    });
  }

  /** Lists a sandbox that ended under an earlier daemon. */
  addEnded(sandbox: Sandbox): void {
    this.#sandboxes.set(sandbox.id, sandbox);
  }

  /** Arms the timers of a sandbox again, after a machine has started or its timeouts were changed. */
  schedule(sandbox: Sandbox): void {
    this.#timers.arm(sandbox);
    this.onSchedule(sandbox);
  }

  /** Removes a sandbox from the list; what it has on disk stays. */
  forget(id: string): void {
    this.#sandboxes.delete(id);
    this.#timers.clear(id);
  }

  /** Kills the sandbox and removes it from the list. */
  async remove(
    id: string,
    event: "sandbox.killed" | "sandbox.expired" = "sandbox.killed",
    reason?: string,
  ): Promise<void> {
    const sandbox = this.get(id);
    this.forget(id);
    const wasDead = sandbox.isDead;
    const disposed = this.#dispose(sandbox);
    const info = sandbox.info();
    this.#events?.sandbox(event, info, reason ?? info.reason);
    await disposed;
    if (wasDead) await this.onEndedRemoved(id);
  }

  async #dispose(sandbox: Sandbox): Promise<void> {
    try {
      await sandbox[Symbol.asyncDispose]();
    } catch (error) {
      this.#log.error({ event: "sandbox.release", sandbox: sandbox.id, error });
    }
  }

  #forgetOldDead(): void {
    const dead = this.all().filter((sandbox) => sandbox.isDead);
    for (const { id } of dead.slice(0, Math.max(0, dead.length - keptDead))) this.forget(id);
  }
}
