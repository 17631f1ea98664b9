/** Snapshots that exist only for the children of a fork: removed when all of them have ended. */
import { randomBytes } from "node:crypto";
import { AppError } from "@forkd/contract";
import { findSnapshots, removeSnapshot, type Runtime } from "@forkd/runtime";

const prefix = "e2b-fork-";
/** The whole form: other snapshots may have a name that begins like it. */
const forkTag = /^e2b-fork-[0-9a-f]{16}$/;

export class ForkSnapshots {
  readonly #runtime: Runtime;
  readonly #unused = new Set<string>();

  private constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Knows those of earlier daemons. */
  static async open(runtime: Runtime): Promise<ForkSnapshots> {
    const forks = new ForkSnapshots(runtime);
    for (const { tag } of await findSnapshots(runtime, { state: "ready" }))
      if (isForkTag(tag)) forks.#unused.add(tag);
    return forks;
  }

  /** `make` forks from a snapshot with this tag, which is not removed meanwhile. */
  async during<T>(make: (tag: string) => Promise<T>): Promise<T> {
    const tag = prefix + randomBytes(8).toString("hex");
    try {
      return await make(tag);
    } finally {
      this.#unused.add(tag);
    }
  }

  /** Removes those that no sandbox needs. */
  async removeUnused(): Promise<void> {
    for (const tag of this.#unused) {
      const isKept = await removeSnapshot(this.#runtime, { tag }).then(
        () => false,
        (error: unknown) => {
          if (!(error instanceof AppError)) throw error;
          return error.code !== "snapshot_not_found";
        },
      );
      if (!isKept) this.#unused.delete(tag);
    }
  }
}

export function isForkTag(tag: string): boolean {
  return forkTag.test(tag);
}
