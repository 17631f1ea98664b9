/** Branches under way: how many, to which tags. A tag in the book is not a snapshot yet. */
import { AppError, type BranchMode } from "@forkd/contract";

export type OpenBranch = {
  readonly tag: string;
  readonly sandbox: string;
  readonly mode: BranchMode;
  readonly startedAt: number;
  /** the snapshot that it will be a layer over, once that is known */
  parentTag?: string;
  memoryMib?: number;
  vcpus?: number;
};

export class OpenBranches {
  readonly limit: number;
  readonly #open = new Map<string, OpenBranch>();

  constructor(limit: number) {
    this.limit = limit;
  }

  get all(): OpenBranch[] {
    return [...this.#open.values()];
  }

  has(tag: string): boolean {
    return this.#open.has(tag);
  }

  /** Tags of open branches that will be layers over the snapshot. */
  over(parentTag: string): string[] {
    return this.all.filter((each) => each.parentTag === parentTag).map(({ tag }) => tag);
  }

  /** Refuses a tag that is being written, and one branch more than the limit. Disposing the result ends the entry. */
  enter(branch: OpenBranch): Disposable {
    this.refuse(branch.tag);
    if (this.#open.size >= this.limit) {
      throw new AppError(
        "capacity_exhausted",
        `Cannot branch ${branch.sandbox}: ${this.#open.size} branches are in progress and the limit is ${this.limit}`,
        {
          details: { under_way: this.#open.size, limit: this.limit },
          remedy: { action: "retry_later", setting: "branch_concurrency" },
        },
      );
    }
    this.#open.set(branch.tag, branch);
    return {
      [Symbol.dispose]: () => {
        if (this.#open.get(branch.tag) === branch) this.#open.delete(branch.tag);
      },
    };
  }

  /** Throws if the tag is being written. */
  refuse(tag: string): void {
    const open = this.#open.get(tag);
    if (!open) return;
    throw new AppError(
      "snapshot_writing",
      `Cannot use snapshot "${tag}": it is still being written (a branch of ${open.sandbox})`,
      { details: { tag, sandbox: open.sandbox }, remedy: { action: "wait_for_snapshot", tag } },
    );
  }
}
