/**
 * Waits for an operation in the guest that has no timeout, such as copying a file. It may continue as long as
 * it makes progress. A guest that shows none for a while is asked whether it still answers: a busy one does,
 * a silent one fails the operation with `agent_unreachable`. A VMM that hangs or was stopped is silent, too.
 */
import { within } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { AgentClient } from "./client.ts";
import { silentGuest } from "./errors.ts";

type Asked = Pick<AgentClient, "deadlines" | "isAnswering" | "isHeld">;

/** Waits for work that may rightly take any time without a sign of it, such as a command that sleeps. */
export function whileAnswering<T>(client: Asked, action: string, work: Promise<T>): Promise<T> {
  return new GuestProgress(client, action, { mayIdle: true }).next(work);
}

export class GuestProgress {
  readonly #client: Asked;
  readonly #action: string;
  readonly #stallMs: number;
  #movedAt = performance.now();
  #isCallersTurn = false;

  /** `mayIdle`: the operation needs no progress as long as the agent answers. */
  constructor(client: Asked, action: string, { mayIdle = false } = {}) {
    this.#client = client;
    this.#action = action;
    this.#stallMs = mayIdle ? Infinity : client.deadlines.stallMs;
  }

  /** The guest has done a step, and now waits for the caller, for example for the next bytes to write. */
  callersTurn(): void {
    this.#isCallersTurn = true;
  }

  guestsTurn(): void {
    this.#isCallersTurn = false;
    this.#movedAt = performance.now();
  }

  /** Waits for the next step of the guest. */
  async next<T>(step: Promise<T>): Promise<T> {
    const { quietMs, pingMs } = this.#client.deadlines;
    this.#movedAt = performance.now();
    // Used again and again below; a failure is reported by the step itself.
    const done = step.then((value) => ({ value }));
    done.catch(() => undefined);
    for (;;) {
      const result = await within(done, quietMs);
      if (result) return result.value;
      // Nothing reaches a guest that is being captured.
      if (this.#isCallersTurn || this.#client.isHeld) this.#movedAt = performance.now();
      else if (performance.now() - this.#movedAt >= this.#stallMs) throw this.#stalled(this.#stallMs);
      else {
        // The step counts as an answer, too: a busy guest may finish it before it reads the question.
        const answer = await Promise.race([done, this.#client.isAnswering()]);
        if (answer === false) throw silentGuest(this.#action, quietMs + pingMs);
      }
    }
  }

  #stalled(ms: number): AppError {
    const message = `Cannot ${this.#action}: the guest made no progress within ${ms / 1000} s`;
    return new AppError("deadline_exceeded", message, { details: { timeout_ms: ms } });
  }
}
