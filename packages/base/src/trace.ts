/** Moments of one piece of work: where its time went. Passed down, and absent unless the log shows it. */
import type { Logger } from "./logger.ts";

export class Trace {
  readonly #startedAt: number;
  readonly #steps: [string, number][] = [];

  /** `startedAt`: of performance.now() */
  constructor(startedAt: number) {
    this.#startedAt = startedAt;
  }

  /** undefined unless the log shows debug lines: then no step is noted. */
  static when(log: Logger, startedAt: number): Trace | undefined {
    return log.isLevelEnabled("debug") ? new Trace(startedAt) : undefined;
  }

  /** Notes that a step has ended. */
  mark(step: string, at = performance.now()): void {
    this.#steps.push([step, at - this.#startedAt]);
  }

  /** Start as Unix time in ms, so that another process of this host can compare, and ms until each step. */
  facts(): { at_unix_ms: number; steps: Record<string, number> } {
    const round = (ms: number) => Math.round(ms * 1000) / 1000;
    return {
      at_unix_ms: round(performance.timeOrigin + this.#startedAt),
      steps: Object.fromEntries(this.#steps.map(([step, ms]) => [step, round(ms)])),
    };
  }
}
