/**
 * Tags → snapshots on disk: `<root>/<tag>/` with a manifest and the files it names. One process owns a root and the
 * cache of memory images that goes with it.
 */
import { mkdir, readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { AppError, tagPattern } from "@forkd/contract";
import { isErrno, nullLogger, removeTree, type Logger } from "@forkd/base";
import { dependentsOf, descendantsOf, walkChain } from "./chain.ts";
import { compactInto, type CompactOptions } from "./compact.ts";
import { Draft, type DraftOptions } from "./draft.ts";
import { FlatCache, type CacheLimits, type Evicted, type EvictOptions } from "./flat-cache.ts";
import { manifestName } from "./manifest.ts";
import { sizesOf, type SnapshotSizes } from "./sizes.ts";
import { readSnapshot, snapshotFile, type StoredSnapshot } from "./snapshot.ts";
import { failed, notFound } from "./snapshot-errors.ts";
import { stampOf, VerifiedFiles } from "./stamp.ts";
import {
  hiddenName,
  isTombstone,
  readTombstone,
  sweepLeftovers,
  trashPrefix,
  writeTombstone,
  type Tombstone,
} from "./tombstone.ts";
import { verifyChain, type VerifyOptions } from "./verify.ts";

/** A tag without a usable snapshot. */
export type BrokenSnapshot = {
  tag: string;
  dir: string;
  /** failed: it never came to be; corrupt: it cannot be read */
  kind: "failed" | "corrupt";
  problem: string;
  /** the sandbox that was branched */
  branchedFrom?: string;
  failedAtUnix?: number;
};

export type StoreOptions = {
  /** directory of the memory images that are made from chains */
  cacheDir: string;
  /** default: none, and nothing is in use */
  cacheLimits?: CacheLimits;
  /** stamps of images that machines map already, by id */
  mappedImages?: ReadonlyMap<string, string>;
  log?: Logger;
};

const anything = async (): Promise<boolean> => true;
const noLimits: CacheLimits = { maxBytes: Number.MAX_SAFE_INTEGER, isUsed: () => false };

export class Store {
  readonly root: string;
  readonly #log: Logger;
  readonly #verified: VerifiedFiles;
  readonly #cache: FlatCache;
  readonly #snapshots = new Map<string, StoredSnapshot>();
  /** failures that could not be written down */
  readonly #failed = new Map<string, Tombstone>();

  private constructor(root: string, verified: VerifiedFiles, cache: FlatCache, log: Logger) {
    this.root = root;
    this.#verified = verified;
    this.#cache = cache;
    this.#log = log;
  }

  /** Opens the root and removes what an earlier owner left half done. */
  static async open(root: string, options: StoreOptions): Promise<Store> {
    const log = options.log ?? nullLogger();
    await mkdir(root, { recursive: true, mode: 0o700 });
    await sweepLeftovers(root);
    const verified = new VerifiedFiles();
    const limits = options.cacheLimits ?? noLimits;
    const cache = await FlatCache.open(options.cacheDir, limits, verified, log, options.mappedImages);
    return new Store(root, verified, cache, log);
  }

  /** Called when a memory image was made from layers, with the seconds that it took. */
  set onFlatBuilt(listener: (seconds: number) => void) {
    this.#cache.onBuilt = listener;
  }

  async list(): Promise<(StoredSnapshot | BrokenSnapshot)[]> {
    const names = new Set([...(await readdir(this.root)), ...this.#failed.keys()]);
    const tags = [...names].filter((name) => tagPattern.test(name)).sort();
    const found = await Promise.all(tags.map((tag) => this.#find(tag)));
    return found.filter((entry) => entry !== undefined);
  }

  /** undefined if it is removed meanwhile */
  async #find(tag: string): Promise<StoredSnapshot | BrokenSnapshot | undefined> {
    const dir = join(this.root, tag);
    try {
      return await this.get(tag);
    } catch (error) {
      if (!(error instanceof AppError)) return { tag, dir, kind: "corrupt", problem: String(error) };
      if (error.code === "snapshot_not_found") return undefined;
      const tombstone = error.code === "snapshot_failed" ? await this.#tombstone(tag) : undefined;
      if (tombstone === undefined) return { tag, dir, kind: "corrupt", problem: error.message };
      const { reason, branched_from, failed_at_unix } = tombstone;
      return {
        tag,
        dir,
        kind: "failed",
        problem: reason,
        failedAtUnix: failed_at_unix,
        ...(branched_from !== undefined && { branchedFrom: branched_from }),
      };
    }
  }

  async get(tag: string): Promise<StoredSnapshot> {
    if (!tagPattern.test(tag)) throw notFound(tag);
    const dir = join(this.root, tag);
    const known = this.#snapshots.get(tag);
    const stamp = await stampOf(join(dir, manifestName));
    if (known !== undefined && known.stamp === stamp) return known;
    this.#snapshots.delete(tag);
    if (stamp === undefined) {
      const tombstone = await this.#tombstone(tag);
      if (tombstone !== undefined) throw failed(tag, tombstone.reason, tombstone.branched_from);
    } else {
      this.#failed.delete(tag);
    }
    try {
      const snapshot = await readSnapshot(dir, tag);
      this.#snapshots.set(tag, snapshot);
      return snapshot;
    } catch (error) {
      // One that was removed and another that took its tag look like a directory without a manifest in between.
      const isOther = stamp !== (await stampOf(join(dir, manifestName)));
      if (isOther || (stamp === undefined && (await this.#tombstone(tag)))) return this.get(tag);
      throw error;
    }
  }

  async #tombstone(tag: string): Promise<Tombstone | undefined> {
    return (await readTombstone(join(this.root, tag))) ?? this.#failed.get(tag);
  }

  /** Whether the files at that place are still those of the snapshot. */
  async isCurrent(snapshot: StoredSnapshot): Promise<boolean> {
    return (await stampOf(join(snapshot.dir, manifestName))) === snapshot.stamp;
  }

  draft(tag: string, options: Omit<DraftOptions, "verified"> = {}): Promise<Draft> {
    return Draft.open(this.root, tag, { ...options, verified: this.#verified });
  }

  /** A draft for `<dir>/<name>` outside the store, whose parent may be in it. */
  draftIn(
    dir: string,
    name: string,
    tag: string,
    options: Omit<DraftOptions, "verified" | "announce"> = {},
  ): Promise<Draft> {
    return Draft.openIn(dir, name, tag, { ...options, verified: this.#verified });
  }

  /**
   * Notes that there is no snapshot of that tag and why; a snapshot that has the tag stays. Without room on disk it is
   * known until the daemon ends.
   */
  async fail(tag: string, reason: string, branchedFrom?: string): Promise<void> {
    const tombstone = {
      reason,
      ...(branchedFrom !== undefined && { branched_from: branchedFrom }),
      failed_at_unix: Math.floor(Date.now() / 1000),
    };
    try {
      await writeTombstone(this.root, tag, tombstone);
      this.#failed.delete(tag);
    } catch (error) {
      this.#failed.set(tag, tombstone);
      this.#log.warn({ err: error, snapshot: tag }, "cannot write down that a snapshot failed");
    }
  }

  /** From the snapshot itself to the flat one it stands on. */
  chain(snapshot: StoredSnapshot): Promise<StoredSnapshot[]> {
    return walkChain(snapshot, (tag) => this.get(tag));
  }

  /** Tags of the snapshots whose memory is a layer over that one's. */
  async dependents(tag: string): Promise<string[]> {
    return dependentsOf(await this.#usable(), tag);
  }

  /** All that stand on it, leaves first. */
  async descendants(tag: string): Promise<string[]> {
    return descendantsOf(await this.#usable(), tag);
  }

  async #usable(): Promise<StoredSnapshot[]> {
    return (await this.list()).filter((entry) => "manifest" in entry);
  }

  /**
   * Compares every file with its digest, and of its ancestors those that its memory is made of. A file that was checked
   * before and has not been touched since (same inode, size and time of change) is not read again unless `always` is set.
   */
  async verify(snapshot: StoredSnapshot, options: VerifyOptions = {}): Promise<void> {
    await verifyChain(await this.chain(snapshot), this.#verified, options);
  }

  /** The file that children map: the snapshot's own, or one in the cache, which is made if it is not there. */
  async flatMemory(
    snapshot: StoredSnapshot,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<string> {
    if (snapshot.manifest.files.memory !== undefined) return snapshotFile(snapshot, "memory");
    return this.#cache.get(await this.chain(snapshot), options.signal);
  }

  /** A fresh name for an image that is to be adopted. Whoever asks for it adopts or removes the file. */
  flatScratch(): string {
    return this.#cache.scratch();
  }

  /** Takes the memory image of a layered snapshot from whoever has just made it, under a name from flatScratch(). */
  async adoptFlat(snapshot: StoredSnapshot, temporaryPath: string): Promise<void> {
    await this.#cache.adopt(snapshot, temporaryPath);
  }

  /** Where the image of a layered snapshot is, if it has been made. */
  flatPath(snapshot: StoredSnapshot): string {
    return this.#cache.path(snapshot.id);
  }

  /** Removes cached images that nothing uses; a dry run only tells. */
  evict(options: EvictOptions = {}): Promise<Evicted[]> {
    return this.#cache.evict(options);
  }

  /** Removes the image of a snapshot outside the store that is gone. */
  discardFlat(snapshot: StoredSnapshot): Promise<void> {
    return this.#cache.discard(snapshot.id);
  }

  sizes(snapshot: StoredSnapshot): Promise<SnapshotSizes> {
    return sizesOf(snapshot);
  }

  /** Makes a snapshot of the same guest state that stands on no other. */
  async compact(
    from: StoredSnapshot,
    toTag: string,
    options: CompactOptions & { replace?: boolean } = {},
  ): Promise<StoredSnapshot> {
    const { signal, replace = false } = options;
    await using draft = await this.draft(toTag, { replace });
    await this.verify(from, { signal });
    const flat = await this.flatMemory(from, { signal });
    return await compactInto(draft, from, flat, options);
  }

  /** Gone at once by rename; the bytes follow. */
  async remove(tag: string): Promise<void> {
    await this.#remove(tag, anything);
  }

  /** Forgets that a snapshot failed; one that has the tag by now stays. */
  async removeFailed(tag: string): Promise<void> {
    await this.#remove(tag, isTombstone);
  }

  async #remove(tag: string, mayGo: (dir: string) => Promise<boolean>): Promise<void> {
    if (!tagPattern.test(tag)) throw notFound(tag);
    const wasFailed = this.#failed.delete(tag);
    const place = join(this.root, tag);
    if (mayGo !== anything && !wasFailed && !(await mayGo(place))) return;
    // What cannot be read has no image.
    const known = await this.get(tag).catch(() => undefined);
    const trash = join(this.root, hiddenName(trashPrefix));
    try {
      await rename(place, trash);
    } catch (error) {
      if (!isErrno(error, "ENOENT")) throw error;
      if (wasFailed) return;
      throw notFound(tag);
    }
    if (!(await mayGo(trash))) {
      await rename(trash, place);
      return;
    }
    this.#snapshots.delete(tag);
    await removeTree(trash);
    if (known) await this.#cache.discard(known.id);
  }
}
