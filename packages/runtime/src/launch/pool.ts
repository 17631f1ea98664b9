/**
 * VMM processes started ahead of need, per snapshot in use.
 *
 * A snapshot becomes hot when it is forked; a branch when it is forked a second time, because most branches
 * are forked once. The pool fills only while no fork is in progress, so it never competes with a caller. A
 * shelf is dropped when it was not used for a while, or when others were used more recently. A process in the
 * pool has loaded nothing and costs no CPU.
 */
import type { Logger } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import { discardChild, type PreparedChild } from "./prepared.ts";

const idleMs = 10 * 60_000;
const maxShelves = 8;

type Shelf = { snapshot: StoredSnapshot; ready: PreparedChild[]; lastUsed: number; uses: number };

function isHot({ snapshot, uses }: Shelf): boolean {
  return uses >= (snapshot.manifest.origin.kind === "branch" ? 2 : 1);
}

/** A tag can be given to another snapshot, which its waiting processes cannot serve. */
function keyOf(snapshot: StoredSnapshot): string {
  return `${snapshot.tag}:${snapshot.id}`;
}

type PoolOptions = {
  /** processes per snapshot */
  readonly size: number;
  readonly prepare: (snapshot: StoredSnapshot) => Promise<PreparedChild>;
  /** whether a process that waited can still be handed out */
  readonly isUsable: (child: PreparedChild) => Promise<boolean>;
  readonly log: Logger;
};

export class VmmPool implements AsyncDisposable {
  readonly #size: number;
  readonly #prepare: PoolOptions["prepare"];
  readonly #isUsable: PoolOptions["isUsable"];
  readonly #log: Logger;
  #shelves = new Map<string, Shelf>();
  #forks = 0;
  #filling: Promise<void> | undefined;
  #closed = false;
  /** counts calls of empty(): a process that was started before one is not kept after it */
  #generation = 0;
  #idleTimer: NodeJS.Timeout;

  constructor({ size, prepare, isUsable, log }: PoolOptions) {
    this.#size = size;
    this.#prepare = prepare;
    this.#isUsable = isUsable;
    this.#log = log;
    this.#idleTimer = setInterval(() => void this.#dropIdle(), idleMs / 10);
    this.#idleTimer.unref();
  }

  /** Number of waiting processes by tag. */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { snapshot, ready } of this.#shelves.values())
      counts[snapshot.tag] = (counts[snapshot.tag] ?? 0) + ready.length;
    return counts;
  }

  /** A waiting process of that snapshot that can be handed out, if there is one. The caller owns it. */
  async take(snapshot: StoredSnapshot): Promise<PreparedChild | undefined> {
    for (;;) {
      const child = this.#shelves.get(keyOf(snapshot))?.ready.shift();
      if (child === undefined || (await this.#isUsable(child))) return child;
      this.#log.warn({ event: "pool.drop", tag: snapshot.tag, sandbox: child.id, reason: "no sockets" });
      await this.#release([child]);
    }
  }

  /** Runs a fork. Filling waits until no fork is in progress. */
  async during<T>(snapshot: StoredSnapshot, work: () => Promise<T>): Promise<T> {
    this.#forks++;
    try {
      return await work();
    } finally {
      this.#forks--;
      const key = keyOf(snapshot);
      const shelf = this.#shelves.get(key) ?? { snapshot, ready: [], lastUsed: 0, uses: 0 };
      shelf.lastUsed = Date.now();
      shelf.uses++;
      // The most recently used shelf is the last one.
      this.#shelves.delete(key);
      if (this.#size > 0 && !this.#closed) this.#shelves.set(key, shelf);
      const [oldest] = this.#shelves.values();
      if (oldest && this.#shelves.size > maxShelves) void this.#dropWhere((each) => each === oldest);
      this.#fill();
    }
  }

  #fill(): void {
    if (this.#forks > 0 || this.#closed || this.#filling) return;
    const shelf = [...this.#shelves.values()].find((each) => isHot(each) && each.ready.length < this.#size);
    if (!shelf) return;
    const generation = this.#generation;
    this.#filling = this.#prepare(shelf.snapshot)
      .then(async (child) => {
        const key = keyOf(shelf.snapshot);
        if (this.#closed || this.#generation !== generation || this.#shelves.get(key) !== shelf)
          return discardChild(child);
        shelf.ready.push(child);
        // A process that exits while it waits must not be handed out.
        void child.machine.exited.then(async () => {
          if (!shelf.ready.includes(child)) return;
          shelf.ready = shelf.ready.filter((each) => each !== child);
          await this.#release([child]);
        });
      })
      .catch(async (error: unknown) => {
        this.#log.warn({ event: "pool.fill", tag: shelf.snapshot.tag, error });
        await this.#dropWhere((each) => each === shelf);
      })
      .finally(() => {
        this.#filling = undefined;
        this.#fill();
      });
  }

  /** Stops the waiting processes of a tag. */
  async drop(tag: string): Promise<void> {
    await this.#dropWhere((shelf) => shelf.snapshot.tag === tag);
  }

  /** Stops all waiting processes. The pool fills again after the next fork. */
  async empty(): Promise<void> {
    this.#generation++;
    const shelves = this.#dropWhere(() => true);
    await this.#filling;
    await shelves;
  }

  async #dropIdle(): Promise<void> {
    await this.#dropWhere((shelf) => Date.now() - shelf.lastUsed > idleMs);
  }

  async #dropWhere(matches: (shelf: Shelf) => boolean): Promise<void> {
    const dropped = [...this.#shelves].filter(([, shelf]) => matches(shelf));
    for (const [key] of dropped) this.#shelves.delete(key);
    const children = dropped.flatMap(([, shelf]) => shelf.ready.splice(0));
    await this.#release(children);
  }

  /** Never rejects: a process that cannot be released is logged, and cleanup finds it as a stray. */
  async #release(children: readonly PreparedChild[]): Promise<void> {
    for (const outcome of await Promise.allSettled(children.map(discardChild))) {
      if (outcome.status === "rejected")
        this.#log.error({ event: "pool.release", error: outcome.reason as unknown });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearInterval(this.#idleTimer);
    await this.#filling;
    await this.#dropWhere(() => true);
  }
}
