/** What callers have open by a right that may end: each is told when it does, and why. */
import type { AppError } from "@forkd/contract";

export type Cut = (why: AppError) => void;

export class OpenCalls {
  readonly #held = new Set<Cut>();

  /** `cut` is called by cut(), until the returned function is called. */
  hold(cut: Cut): () => void {
    this.#held.add(cut);
    return () => void this.#held.delete(cut);
  }

  cut(why: AppError): void {
    for (const cut of [...this.#held]) cut(why);
  }
}
