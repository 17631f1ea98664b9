/**
 * Signals to this process. By default the first one aborts `signal` and the second exits at once. A verb that
 * forwards signals to a guest takes them over for that time. A closed stdout aborts too, without a message.
 */
import { constants } from "node:os";

export type InterruptName = "SIGINT" | "SIGTERM" | "SIGHUP";
const names: readonly InterruptName[] = ["SIGINT", "SIGTERM", "SIGHUP"];

export class Interrupts {
  readonly #controller = new AbortController();
  #takenOver: ((name: InterruptName) => void) | undefined;
  #pipeClosed = false;
  #first: InterruptName | undefined;

  constructor() {
    for (const name of names) process.on(name, () => this.#receive(name));
    process.stdout.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
      this.#pipeClosed = true;
      this.#controller.abort(error);
    });
    // A closed stderr leaves no place for a message.
    process.stderr.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get pipeClosed(): boolean {
    return this.#pipeClosed;
  }

  /** The signal that caused the abort, if one did. */
  get received(): InterruptName | undefined {
    return this.#first;
  }

  /** Passes signals to `handler` until the result is disposed. */
  takeOver(handler: (name: InterruptName) => void): Disposable {
    this.#takenOver = handler;
    return {
      [Symbol.dispose]: () => {
        if (this.#takenOver === handler) this.#takenOver = undefined;
      },
    };
  }

  /** Ends the verb without a failure: the user has seen enough. */
  quit(): void {
    this.#controller.abort(new Error("Quit"));
  }

  abort(name: InterruptName): void {
    if (this.#first !== undefined) process.exit(signalExitCode(this.#first));
    this.#first = name;
    this.#controller.abort(new Error(`Interrupted by ${name}`));
  }

  #receive(name: InterruptName): void {
    if (this.#takenOver === undefined) this.abort(name);
    else this.#takenOver(name);
  }
}

export function signalExitCode(name: InterruptName): number {
  return 128 + constants.signals[name];
}

/** For verbs that run until they are interrupted: an interrupt is not a failure and prints nothing. */
export async function untilInterrupted(
  interrupts: Interrupts,
  work: () => Promise<void>,
): Promise<number | void> {
  try {
    return await work();
  } catch (error) {
    if (!interrupts.signal.aborted) throw error;
    return interrupts.received === undefined ? 0 : signalExitCode(interrupts.received);
  }
}
