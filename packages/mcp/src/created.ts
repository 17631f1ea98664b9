/** The sandboxes that one caller created and has not killed. */
import { deadlineSignal } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";

/** How many are killed at the same time. */
const parallel = 8;
/** How long all kills together may take when the server ends. */
const killMs = 20_000;

export class CreatedSandboxes {
  readonly #ids = new Set<string>();

  get size(): number {
    return this.#ids.size;
  }

  add(ids: Iterable<string>): void {
    for (const id of ids) this.#ids.add(id);
  }

  forget(id: string): void {
    this.#ids.delete(id);
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  /** Kills all of them; resolves to the ids of those that could not be killed. */
  async killAll(forkd: Forkd): Promise<string[]> {
    using deadline = deadlineSignal(killMs);
    const ids = [...this.#ids];
    const failed: string[] = [];
    const next = async (): Promise<void> => {
      for (let id = ids.shift(); id !== undefined; id = ids.shift()) {
        try {
          await forkd.call("kill", { id }, { signal: deadline.signal });
          this.#ids.delete(id);
        } catch (error) {
          if (isGone(error)) this.#ids.delete(id);
          else failed.push(id);
        }
      }
    };
    await Promise.all(Array.from({ length: parallel }, next));
    return failed;
  }
}

/** A sandbox that a timeout or another caller has killed. */
function isGone(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "sandbox_not_found";
}
