/**
 * Children that are ready before they are asked for, per snapshot in use (ready-child.ts). A fork takes from
 * here first.
 *
 * A snapshot becomes hot when it is forked; a branch when it is forked a second time, because most branches
 * are forked once. How many children wait follows from demand and memory (pool-sizes.ts), or is set by an
 * operator. The pool fills in the background, only while no fork is in progress, and gives its memory up when
 * a caller needs it. A shelf is dropped when its snapshot goes, and when it was not used for a while.
 */
import { AppError } from "@forkd/contract";
import type { Logger } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import type { PoolPins } from "./pool-pins.ts";
import { poolSizes } from "./pool-sizes.ts";
import { discardChild, type ReadyChild } from "./prepared.ts";
import { isHot, isPoolable, keyOf, newShelf, type Shelf } from "./shelf.ts";

const idleMs = 10 * 60_000;
const maxShelves = 32;
const tidyMs = 5000;
/** A caller that has just forked mostly uses its children next, so the pool fills a moment later. */
const quietMs = 250;
/** The pool fills beside forks if it could not fill for this long. */
const starvedMs = 3000;
/** after a caller needed the memory, or a child could not be made */
const restMs = 10_000;
const maxRestMs = 5 * 60_000;

/** Why a child of the pool was not handed out. */
type Discard = "exited" | "stale" | "surplus" | "idle" | "pressure" | "removed" | "stopped";

type PoolOptions = {
  /** for all children together, beside those that operators ask for; 0: no pool */
  readonly budgetMib: number;
  /** how many are made at the same time */
  readonly parallel: number;
  readonly pins: PoolPins;
  readonly make: (snapshot: StoredSnapshot, signal: AbortSignal) => Promise<ReadyChild>;
  /** whether a child that waited can still be handed out */
  readonly isUsable: (child: ReadyChild) => Promise<boolean>;
  /** expected memory of one child */
  readonly childMib: (snapshot: StoredSnapshot) => number;
  /** the snapshot that has the tag now */
  readonly find: (tag: string) => Promise<StoredSnapshot | undefined>;
  readonly onDiscard: (reason: Discard, count: number) => void;
  readonly log: Logger;
};

type ShelfInfo = {
  tag: string;
  ready: number;
  making: number;
  wanted: number;
  pinned: number | undefined;
  childMib: number;
};

export class ReadyPool implements AsyncDisposable {
  readonly #options: PoolOptions;
  readonly #shelves = new Map<string, Shelf>();
  #forks = 0;
  #making = new Set<Promise<void>>();
  #isClosed = false;
  /** fires when the children that are being made are not wanted any more */
  #stop = new AbortController();
  /** children that are being stopped */
  readonly #releases = new Set<Promise<void>>();
  /** counts calls of empty(): a child that was begun before one is not kept after it */
  #generation = 0;
  /** empty() stops everything until the next fork */
  #isResting = false;
  #restsUntil = 0;
  #filledAt = 0;
  readonly #timer: NodeJS.Timeout;
  #soon: NodeJS.Timeout | undefined;
  #waiters = new Set<() => void>();

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#tidy(), tidyMs);
    this.#timer.unref();
  }

  get isOn(): boolean {
    return this.#options.budgetMib > 0;
  }

  /** Number of ready children by tag. */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { snapshot, ready } of this.#shelves.values())
      counts[snapshot.tag] = (counts[snapshot.tag] ?? 0) + ready.length;
    return counts;
  }

  /** By tag, in order. */
  shelves(): ShelfInfo[] {
    const sizes = this.#sizes();
    const { childMib, pins } = this.#options;
    return [...this.#shelves.values()]
      .map((shelf) => ({
        tag: shelf.snapshot.tag,
        ready: shelf.ready.length,
        making: shelf.making,
        wanted: sizes.get(shelf) ?? 0,
        pinned: pins.all.get(shelf.snapshot.tag),
        childMib: childMib(shelf.snapshot),
      }))
      .sort((a, b) => (a.tag < b.tag ? -1 : 1));
  }

  get budgetMib(): number {
    return this.#options.budgetMib;
  }

  /** Memory that all ready children are expected to use. */
  get usedMib(): number {
    let used = 0;
    for (const { snapshot, ready } of this.#shelves.values())
      used += ready.length * this.#options.childMib(snapshot);
    return used;
  }

  /** How many ready children a fork of that snapshot would find. */
  available(snapshot: StoredSnapshot): number {
    return this.#shelves.get(keyOf(snapshot))?.ready.length ?? 0;
  }

  /** A child that can be handed out, if there is one. The caller owns it. */
  async take(snapshot: StoredSnapshot): Promise<ReadyChild | undefined> {
    for (;;) {
      const child = this.#shelves.get(keyOf(snapshot))?.ready.shift();
      if (child === undefined || (await this.#options.isUsable(child))) return child;
      await this.#release([child], "stale");
    }
  }

  /** Runs a fork of n children. Filling waits until no fork is in progress. */
  async during<T>(snapshot: StoredSnapshot, n: number, work: () => Promise<T>): Promise<T> {
    this.#forks++;
    const shelf = this.#use(snapshot, n);
    try {
      return await work();
    } finally {
      this.#forks--;
      shelf.lastUsed = performance.now();
      this.#fillSoon();
    }
  }

  #use(snapshot: StoredSnapshot, n: number): Shelf {
    this.#isResting = false;
    const now = performance.now();
    const shelf = this.#shelves.get(keyOf(snapshot)) ?? newShelf(snapshot);
    shelf.lastUsed = now;
    shelf.uses++;
    shelf.demand.add(n, now);
    // The most recently used shelf is the last one.
    const key = keyOf(snapshot);
    this.#shelves.delete(key);
    if (this.isOn && !this.#isClosed) this.#shelves.set(key, shelf);
    if (this.#shelves.size > maxShelves) {
      const oldest = [...this.#shelves.values()].find((each) => this.#pinOf(each) === undefined);
      if (oldest && oldest !== shelf) void this.#dropWhere((each) => each === oldest, "idle");
    }
    return shelf;
  }

  /** Sets how many children of a tag wait, whatever the demand; undefined: automatic again. */
  async pin(tag: string, ready: number | undefined): Promise<void> {
    await this.#options.pins.set(tag, ready);
    this.#isResting = false;
    await this.#tidy();
  }

  /** Begins to fill what operators have set. Call it when the store can be used. */
  start(): void {
    void this.#tidy();
  }

  /** Resolves when so many children are ready, or as many as the pool will have; false when it is too late. */
  async filled(snapshot: StoredSnapshot, n: number, ms: number, signal?: AbortSignal): Promise<boolean> {
    const end = performance.now() + ms;
    for (;;) {
      signal?.throwIfAborted();
      const shelf = this.#shelves.get(keyOf(snapshot));
      const wanted = shelf ? (this.#sizes().get(shelf) ?? 0) : 0;
      if (this.available(snapshot) >= Math.min(n, wanted)) return true;
      const left = end - performance.now();
      if (left <= 0) return false;
      await new Promise<void>((resolve) => {
        const done = () => {
          clearTimeout(timer);
          this.#waiters.delete(done);
          resolve();
        };
        const timer = setTimeout(done, left);
        this.#waiters.add(done);
      });
    }
  }

  #changed(): void {
    for (const waiter of this.#waiters) waiter();
  }

  #pinOf({ snapshot }: Shelf): number | undefined {
    return this.#options.pins.all.get(snapshot.tag);
  }

  #sizes(): Map<Shelf, number> {
    const now = performance.now();
    const shelves = [...this.#shelves.values()];
    const wishes = shelves.map((shelf) => ({
      pinned: this.#pinOf(shelf),
      peak: isHot(shelf) && isPoolable(shelf.snapshot) ? shelf.demand.peak(now) : 0,
      lastUsed: shelf.lastUsed,
      childMib: this.#options.childMib(shelf.snapshot),
    }));
    const sizes = poolSizes(wishes, this.#options.budgetMib);
    return new Map(shelves.map((shelf, at) => [shelf, sizes[at] ?? 0]));
  }

  #fillSoon(): void {
    if (this.#soon || this.#isClosed) return;
    this.#soon = setTimeout(() => {
      this.#soon = undefined;
      this.#fill();
    }, quietMs);
    this.#soon.unref();
  }

  #fill(): void {
    const now = performance.now();
    const isOff = !this.isOn || this.#isClosed || this.#isResting;
    // Under steady load there is always a fork in progress.
    const isBusy = this.#forks > 0 && now - this.#filledAt < starvedMs;
    if (isOff || isBusy || now < this.#restsUntil) return;
    this.#filledAt = now;
    for (const [shelf, size] of this.#sizes()) {
      while (this.#making.size < this.#options.parallel && shelf.ready.length + shelf.making < size) {
        if (now < shelf.restsUntil) break;
        const made = this.#makeOne(shelf).finally(() => {
          this.#making.delete(made);
          this.#changed();
          this.#fill();
        });
        this.#making.add(made);
      }
    }
  }

  /** Never rejects. */
  async #makeOne(shelf: Shelf): Promise<void> {
    const generation = this.#generation;
    shelf.making++;
    try {
      const child = await this.#options.make(shelf.snapshot, this.#stop.signal);
      shelf.failures = 0;
      const isKept = this.#shelves.get(keyOf(shelf.snapshot)) === shelf && this.#generation === generation;
      if (this.#isClosed || !isKept) return await this.#release([child], "removed");
      shelf.ready.push(child);
      // A child that exits while it waits must not be handed out.
      void child.machine.exited.then(async () => {
        if (!shelf.ready.includes(child)) return;
        shelf.ready = shelf.ready.filter((each) => each !== child);
        await this.#release([child], "exited");
        this.#fill();
      });
    } catch (error) {
      if (this.#generation !== generation || this.#isClosed) return;
      shelf.failures++;
      shelf.restsUntil = performance.now() + Math.min(restMs * 2 ** (shelf.failures - 1), maxRestMs);
      this.#options.log.warn({ event: "pool.fill", tag: shelf.snapshot.tag, error });
    } finally {
      shelf.making--;
    }
  }

  /** Drops what is not needed any more, finds the snapshots of tags that operators have set, and fills. */
  async #tidy(): Promise<void> {
    if (this.#isClosed || !this.isOn) return;
    const now = performance.now();
    const isIdle = (shelf: Shelf) => this.#pinOf(shelf) === undefined && now - shelf.lastUsed > idleMs;
    await this.#dropWhere(isIdle, "idle");
    await this.#findPinned();
    for (const [shelf, size] of this.#sizes()) {
      const surplus = shelf.ready.splice(0, Math.max(0, shelf.ready.length - size));
      await this.#release(surplus, "surplus");
    }
    this.#fill();
  }

  async #findPinned(): Promise<void> {
    for (const tag of this.#options.pins.all.keys()) {
      const snapshot = await this.#options.find(tag).catch(() => undefined);
      if (!snapshot || this.#isClosed) continue;
      const stale = (shelf: Shelf) => shelf.snapshot.tag === tag && keyOf(shelf.snapshot) !== keyOf(snapshot);
      await this.#dropWhere(stale, "removed");
      if (!this.#shelves.has(keyOf(snapshot)))
        this.#shelves.set(keyOf(snapshot), this.#shelves.get(keyOf(snapshot)) ?? newShelf(snapshot));
    }
  }

  /** Stops the ready children of a tag. */
  async drop(tag: string): Promise<void> {
    await this.#dropWhere(({ snapshot }) => snapshot.tag === tag, "removed");
  }

  /** The tag is gone for good: what an operator has set for it goes, too. */
  async forget(tag: string): Promise<void> {
    await this.drop(tag);
    if (this.#options.pins.all.has(tag)) await this.#options.pins.set(tag, undefined);
  }

  /** Stops all ready children. The pool fills again after the next fork. */
  async empty(): Promise<void> {
    this.#isResting = true;
    this.#abandon();
    const shelves = this.#dropWhere(() => true, "stopped");
    await Promise.all(this.#making);
    await shelves;
  }

  /**
   * A caller needs the memory: stops all ready children but those that it can use itself.
   */
  giveUp(kept?: StoredSnapshot): void {
    this.#restsUntil = performance.now() + restMs;
    this.#abandon();
    for (const [key, shelf] of this.#shelves)
      if (!kept || key !== keyOf(kept)) void this.#release(shelf.ready.splice(0), "pressure");
  }

  /** What giveUp() would free. */
  freeableMib(kept?: StoredSnapshot): number {
    let freed = 0;
    for (const [key, { ready, snapshot }] of this.#shelves)
      if (!kept || key !== keyOf(kept)) freed += ready.length * this.#options.childMib(snapshot);
    return freed;
  }

  /** Children that are being made are not kept. */
  #abandon(): void {
    this.#generation++;
    this.#stop.abort(new AppError("cancelled", "The children are not needed any more"));
    this.#stop = new AbortController();
  }

  async #dropWhere(matches: (shelf: Shelf) => boolean, reason: Discard): Promise<void> {
    const dropped = [...this.#shelves].filter(([, shelf]) => matches(shelf));
    for (const [key] of dropped) this.#shelves.delete(key);
    const children = dropped.flatMap(([, shelf]) => shelf.ready.splice(0));
    await this.#release(children, reason);
  }

  /** Never rejects: a process that cannot be released is logged, and cleanup finds it as a stray. */
  async #release(children: readonly ReadyChild[], reason: Discard): Promise<void> {
    if (children.length === 0) return;
    this.#options.onDiscard(reason, children.length);
    const released = this.#discard(children).finally(() => this.#releases.delete(released));
    this.#releases.add(released);
    await released;
  }

  async #discard(children: readonly ReadyChild[]): Promise<void> {
    for (const outcome of await Promise.allSettled(children.map(discardChild))) {
      if (outcome.status === "rejected")
        this.#options.log.error({ event: "pool.release", error: outcome.reason as unknown });
    }
    this.#changed();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    clearTimeout(this.#soon);
    this.#abandon();
    await Promise.all(this.#making);
    await this.#dropWhere(() => true, "stopped");
    await Promise.all(this.#releases);
  }
}
