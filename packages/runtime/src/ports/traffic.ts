/**
 * Counts a connection that may stay open for any time, such as a WebSocket, as activity while bytes flow. Time
 * in which it is silent is idle time of the sandbox.
 */
import type { Activity } from "../sandbox/timers.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** Silence after which the connection is idle */
const quietMs = 1000;

export class Traffic implements Disposable {
  readonly #activity: Activity;
  readonly #sandbox: Sandbox;
  #call: Disposable | undefined;
  #timer: NodeJS.Timeout | undefined;
  #lastAt = 0;

  constructor(activity: Activity, sandbox: Sandbox) {
    this.#activity = activity;
    this.#sandbox = sandbox;
  }

  /** Bytes flow. */
  touch(): void {
    this.#lastAt = performance.now();
    this.#call ??= this.#activity.begin(this.#sandbox);
    this.#timer ??= setInterval(() => this.#look(), quietMs).unref();
  }

  #look(): void {
    if (performance.now() - this.#lastAt >= quietMs) this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#call?.[Symbol.dispose]();
    this.#call = undefined;
  }
}
