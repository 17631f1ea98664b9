/** Requests that are open by a right that may be revoked, such as a key. */
import type { AppError } from "@forkd/contract";

export type Cut = (why: AppError) => void;

export class OpenCalls {
  readonly #held = new Set<Cut>();

  /** cut() calls `cut`, until the returned function is called. */
  hold(cut: Cut): () => void {
    this.#held.add(cut);
    return () => void this.#held.delete(cut);
  }

  cut(why: AppError): void {
    for (const cut of [...this.#held]) cut(why);
  }
}
