/** Branches in progress, by tag. A tag in this list cannot be used as a snapshot yet. */
import { AppError, plural, type BranchMode } from "@forkd/contract";
import type { EventBus } from "../observe/events.ts";

type BranchFacts = {
  readonly tag: string;
  readonly sandbox: string;
  readonly mode: BranchMode;
  readonly startedAt: number;
};

export class OpenBranches {
  readonly limit: number;
  readonly #open = new Map<string, OpenBranch>();
  /** tag → what writes it */
  readonly #reserved = new Map<string, string>();
  readonly #events: EventBus;

  constructor(limit: number, events: EventBus) {
    this.limit = limit;
    this.#events = events;
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

  /**
   * Refuses a tag that is being written, and branches above the limit. Disposing the result closes the
   * branch.
   */
  open(facts: BranchFacts): OpenBranch {
    this.#refuseToWrite(facts.tag);
    if (this.#open.size >= this.limit) {
      throw new AppError(
        "capacity_exhausted",
        `Cannot branch ${facts.sandbox}: ${plural(this.#open.size, "branch")} ${this.#open.size === 1 ? "is" : "are"} in progress and the limit is ${this.limit}`,
        {
          details: { under_way: this.#open.size, limit: this.limit },
          remedy: { action: "retry_later", setting: "branch_concurrency" },
        },
      );
    }
    const branch = new OpenBranch(facts, this.#events, () => void this.#open.delete(facts.tag));
    this.#open.set(facts.tag, branch);
    return branch;
  }

  /**
   * Reserves a tag for a build or a compaction, so that the second of two with one tag does not learn it at its
   * end. A snapshot that has the tag can be used meanwhile. Disposing the result releases the tag.
   */
  reserve(tag: string, by: string): Disposable {
    this.#refuseToWrite(tag);
    this.#reserved.set(tag, by);
    return { [Symbol.dispose]: () => void this.#reserved.delete(tag) };
  }

  #refuseToWrite(tag: string): void {
    this.refuse(tag);
    const by = this.#reserved.get(tag);
    if (by === undefined) return;
    throw new AppError("snapshot_writing", `Cannot write snapshot "${tag}": a ${by} of it is in progress`, {
      details: { tag },
      remedy: { action: "wait_for_snapshot", tag },
    });
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

/** One branch, from the request until its snapshot is published or abandoned. Reports both as events. */
export class OpenBranch implements Disposable {
  readonly tag: string;
  readonly sandbox: string;
  /** as asked, until the base of the branch is known */
  mode: BranchMode;
  readonly startedAt: number;
  /** the snapshot that it will be a layer over, once that is known */
  parentTag?: string;
  memoryMib?: number;
  vcpus?: number;
  readonly #events: EventBus;
  readonly #remove: () => void;
  #state: "open" | "writing" | "closed" = "open";
  #isPublished = false;
  #reason = "it was given up";

  constructor(facts: BranchFacts, events: EventBus, remove: () => void) {
    this.tag = facts.tag;
    this.sandbox = facts.sandbox;
    this.mode = facts.mode;
    this.startedAt = facts.startedAt;
    this.#events = events;
    this.#remove = remove;
  }

  /** The source runs again; only files are left to write. */
  writing(): void {
    this.#state = "writing";
    this.#events.snapshot("snapshot.writing", this.tag, { status: "writing", sandbox: this.sandbox });
  }

  published(): void {
    this.#isPublished = true;
  }

  failed(reason: string): void {
    this.#reason = reason;
  }

  /** Leaves the list first, so that a listener who lists the snapshots finds what the event says. */
  [Symbol.dispose](): void {
    if (this.#state === "closed") return;
    const wasWriting = this.#state === "writing";
    this.#state = "closed";
    this.#remove();
    if (!wasWriting) return;
    const { tag, sandbox } = this;
    if (this.#isPublished) this.#events.snapshot("snapshot.ready", tag, { status: "ready", sandbox });
    else this.#events.snapshot("snapshot.failed", tag, { status: "failed", sandbox, reason: this.#reason });
  }
}
