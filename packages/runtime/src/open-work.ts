/** Work that must not outlive the runtime: it is cancelled and waited for when the runtime closes. */
import { AppError } from "@forkd/contract";
import type { OnStop } from "./config.ts";

export class OpenWork {
  /** what happens to running sandboxes when the runtime closes */
  onStop: OnStop;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<unknown>>();
  #areCallersDetached = false;

  constructor(onStop: OnStop) {
    this.onStop = onStop;
  }

  get isClosing(): boolean {
    return this.#closing.signal.aborted;
  }

  /**
   * Runs work that makes or changes machines. Its signal fires when the caller has gone or the runtime
   * closes.
   */
  async whileOpen<T>(signal: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const closing = this.#closing.signal;
    closing.throwIfAborted();
    // A signal for each call, so that its listeners are freed with the work.
    const running = work(AbortSignal.any([...(signal ? [signal] : []), closing]));
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Refuses new work, cancels what is running and waits for it. */
  async end(): Promise<void> {
    this.#closing.abort(
      new AppError("daemon_stopping", "The daemon is stopping", { remedy: { action: "retry_later" } }),
    );
    await Promise.allSettled(this.#running);
  }

  /**
   * From now on callers are disconnected by the daemon: what they run in a guest continues if the guest does.
   */
  detachCallers(): void {
    this.#areCallersDetached = true;
  }

  /** Whether a command continues in the guest although its caller has gone. */
  get keepsRunningWithoutCaller(): boolean {
    return this.#areCallersDetached && this.onStop === "keep";
  }
}
