/**
 * Tags → snapshots on disk: `<root>/<tag>/` with a manifest and the files it names. One process owns a root
 * and its cache of memory images.
 */
import { mkdir, readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { AppError, tagPattern } from "@forkd/contract";
import { isErrno, nullLogger, removeTree, type Logger } from "@forkd/base";
import { dependentsOf, descendantsOf, findParent, walkChain } from "./chain.ts";
import { compactInto, type CompactOptions } from "./compact.ts";
import { Draft, type DraftOptions } from "./draft.ts";
import {
  FlatCache,
  type CacheLimits,
  type Evicted,
  type EvictOptions,
  type MemorySource,
} from "./flat-cache.ts";
import { KeptImages } from "./kept-image.ts";
import { LocalFiles } from "./local-files.ts";
import { manifestName } from "./manifest.ts";
import { PullDirectories, removeOldPulls } from "./pull-directories.ts";
import { freedBytes, sizesOf, type SnapshotSizes } from "./sizes.ts";
import { readSnapshot, snapshotFile, type StoredSnapshot } from "./snapshot.ts";
import { corrupt, failed, notFound } from "./snapshot-errors.ts";
import { stampOf, VerifiedFiles } from "./stamp.ts";
import {
  draftPrefix,
  hiddenName,
  isTombstone,
  readTombstone,
  removeLeftovers,
  trashPrefix,
  writeTombstone,
  type Tombstone,
} from "./tombstone.ts";
import type { BrokenSnapshot, StoreOptions } from "./store-types.ts";
import { VerifiedRecord } from "./verified-record.ts";
import { verifyChain, type VerifyOptions } from "./verify.ts";
import { maxViewSegments, ViewCache, type MemoryView } from "./view-cache.ts";

const anything = async (): Promise<boolean> => true;
const noLimits: CacheLimits = { maxBytes: Number.MAX_SAFE_INTEGER, isUsed: () => false };

type StoreParts = {
  root: string;
  verified: VerifiedFiles;
  record: VerifiedRecord | undefined;
  cache: FlatCache;
  views: ViewCache;
  log: Logger;
};

export class Store implements AsyncDisposable {
  readonly root: string;
  readonly pulls: PullDirectories;
  readonly #log: Logger;
  readonly #verified: VerifiedFiles;
  readonly #record: VerifiedRecord | undefined;
  readonly #cache: FlatCache;
  readonly #views: ViewCache;
  readonly #images: KeptImages;
  readonly #snapshots = new Map<string, StoredSnapshot>();
  /** tombstones that could not be written to disk */
  readonly #failed = new Map<string, Tombstone>();

  private constructor(parts: StoreParts) {
    this.root = parts.root;
    this.pulls = new PullDirectories(parts.root);
    this.#verified = parts.verified;
    this.#record = parts.record;
    this.#cache = parts.cache;
    this.#views = parts.views;
    this.#images = new KeptImages(parts.verified, parts.log);
    this.#log = parts.log;
  }

  /** Opens the root and removes the leftovers of an earlier process. */
  static async open(root: string, options: StoreOptions): Promise<Store> {
    const log = options.log ?? nullLogger();
    await mkdir(root, { recursive: true, mode: 0o700 });
    const verified = new VerifiedFiles();
    const record = options.verifiedRecord && new VerifiedRecord(options.verifiedRecord, verified, log);
    await record?.load();
    await removeLeftovers(root);
    await removeOldPulls(root);
    const limits = options.cacheLimits ?? noLimits;
    const cache = await FlatCache.open(options.cacheDir, limits, verified, log, options.mappedImages);
    const views = await ViewCache.open(`${options.cacheDir}-views`, {
      verified,
      isUsed: limits.isUsed,
      maxSegments: options.maxViewSegments ?? maxViewSegments,
      mapped: options.mappedViews ?? new Map(),
    });
    return new Store({ root, verified, record, cache, views, log });
  }

  /** Remembers the verified files for the next process. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#record?.[Symbol.asyncDispose]();
  }

  /** Called when a memory image was built from layers, with the duration in seconds. */
  set onFlatBuilt(listener: (seconds: number) => void) {
    this.#cache.onBuilt = listener;
  }

  async list(): Promise<(StoredSnapshot | BrokenSnapshot)[]> {
    const names = new Set([...(await readdir(this.root)), ...this.#failed.keys()]);
    const tags = [...names].filter((name) => tagPattern.test(name)).sort();
    const found = await Promise.all(tags.map((tag) => this.#find(tag)));
    return found.filter((entry) => entry !== undefined);
  }

  /** undefined if the snapshot was removed since readdir() */
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
      // While another snapshot replaces a removed one, a directory without a manifest may be visible. Retry.
      const isOther = stamp !== (await stampOf(join(dir, manifestName)));
      if (isOther || (stamp === undefined && (await this.#tombstone(tag)))) return this.get(tag);
      throw error;
    }
  }

  async #tombstone(tag: string): Promise<Tombstone | undefined> {
    return (await readTombstone(join(this.root, tag))) ?? this.#failed.get(tag);
  }

  /** Whether the directory still contains this snapshot and not a later one. */
  async isCurrent(snapshot: StoredSnapshot): Promise<boolean> {
    return (await stampOf(join(snapshot.dir, manifestName))) === snapshot.stamp;
  }

  draft(tag: string, options: Omit<DraftOptions, "verified"> = {}): Promise<Draft> {
    return Draft.open(this.root, tag, { ...options, verified: this.#verified });
  }

  /** Opens a draft for `<dir>/<name>` outside the store. Its parent may be in the store. */
  draftIn(
    dir: string,
    name: string,
    tag: string,
    options: Omit<DraftOptions, "verified" | "announce"> = {},
  ): Promise<Draft> {
    return Draft.openIn(dir, name, tag, { ...options, verified: this.#verified });
  }

  /**
   * A hidden directory for files that become part of snapshots. The next open of the store removes it, one with
   * a key after a week.
   */
  async staging(key?: string): Promise<string> {
    if (key !== undefined) return await this.pulls.use(key);
    const dir = join(this.root, hiddenName(draftPrefix));
    await mkdir(dir, { mode: 0o700 });
    return dir;
  }

  /**
   * Records that the snapshot of that tag failed and why; an existing snapshot with the tag stays. If the
   * disk is full, only this process remembers the failure.
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
      this.#log.warn({ err: error, snapshot: tag }, "cannot record that a snapshot failed");
    }
  }

  /** Returns the chain from the snapshot down to the flat one. */
  chain(snapshot: StoredSnapshot): Promise<StoredSnapshot[]> {
    return walkChain(snapshot, {
      get: (tag) => this.get(tag),
      hasImage: (each) => this.#images.has(each),
    });
  }

  /** The part of the chain that the memory of the snapshot is built from, and the length of all of it. */
  async memorySource(
    snapshot: StoredSnapshot,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<MemorySource & { lineage: number }> {
    const chain = await this.chain(snapshot);
    for (const [index, each] of chain.entries()) {
      const whole = each.manifest.files.memory
        ? snapshotFile(each, "memory")
        : await this.#images.find(each, options);
      if (whole !== undefined) return { chain: chain.slice(0, index + 1), whole, lineage: chain.length };
    }
    throw corrupt(snapshot, "no snapshot of its chain has a whole memory");
  }

  /**
   * Keeps the whole memory of a layered snapshot beside its layer, so that chains over it are short again. The
   * snapshot stays the same one. Returns false if that was done before, or if the snapshot was removed.
   */
  async keepImage(
    snapshot: StoredSnapshot,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<boolean> {
    const { signal } = options;
    const { chain } = await this.memorySource(snapshot, options);
    if (chain.length === 1) return false;
    await this.verify(snapshot, options);
    const image = await this.flatMemory(snapshot, options);
    await this.#images.keep(snapshot, image, signal);
    return this.isCurrent(snapshot);
  }

  /** The snapshot that a layer names as its parent; undefined if it is missing. */
  parentOf(snapshot: StoredSnapshot): Promise<StoredSnapshot | undefined> {
    const { parent } = snapshot.manifest;
    return parent ? findParent(parent, (tag) => this.get(tag)) : Promise.resolve(undefined);
  }

  /** The files that the snapshots of this store have, by digest. */
  async localFiles(): Promise<LocalFiles> {
    return new LocalFiles(await this.#usable(), this.#verified);
  }

  /** Tags of the snapshots whose layer has `tag` as parent. */
  async dependents(tag: string): Promise<string[]> {
    return dependentsOf(await this.#usable(), tag);
  }

  /** Tags of all snapshots that depend on `tag`, directly or not; leaves first. */
  async descendants(tag: string): Promise<string[]> {
    return descendantsOf(await this.#usable(), tag);
  }

  async #usable(): Promise<StoredSnapshot[]> {
    return (await this.list()).filter((entry) => "manifest" in entry);
  }

  /**
   * Compares every file with its digest, and the memory files of all ancestors. A file that was checked
   * before and has the same inode, size and modification time is not read again unless `always` is set. Below
   * a snapshot whose whole memory is kept, nothing is needed, and only `always` reads it.
   */
  async verify(snapshot: StoredSnapshot, options: VerifyOptions = {}): Promise<void> {
    if (options.always !== true) {
      const { chain } = await this.memorySource(snapshot, options);
      return verifyChain(chain, this.#verified, options);
    }
    const chain = await this.chain(snapshot);
    for (const each of chain) await this.#images.find(each, options);
    await verifyChain(chain, this.#verified, options);
  }

  /**
   * What children map: the snapshot's own memory file, or a view of the files of its chain. With too many
   * segments for a view, or without `views`, a flat image in the cache.
   */
  async childMemory(
    snapshot: StoredSnapshot,
    options: { views: boolean; signal?: AbortSignal | undefined },
  ): Promise<{ path: string; view?: MemoryView }> {
    if (options.views && snapshot.manifest.files.memory === undefined) {
      const source = await this.memorySource(snapshot, options);
      const view = await this.#views.get(source, options.signal);
      if (view) return { path: view.path, view };
    }
    return { path: await this.flatMemory(snapshot, options) };
  }

  /** Path of a view that a machine uses. */
  viewPath(name: string): string {
    return this.#views.path(name);
  }

  /** Returns one file of the whole memory: the snapshot's own, or one in the cache, built if missing. */
  async flatMemory(
    snapshot: StoredSnapshot,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<string> {
    if (snapshot.manifest.files.memory !== undefined) return snapshotFile(snapshot, "memory");
    return this.#cache.get(await this.memorySource(snapshot, options), options.signal);
  }

  /** Path of the memory image of a layered snapshot; the file may not exist. */
  flatPath(snapshot: StoredSnapshot): string {
    return this.#cache.path(snapshot.id);
  }

  /** Removes cached images and views that no machine uses; a dry run only reports them. */
  async evict(options: EvictOptions = {}): Promise<Evicted[]> {
    // Views are too small to count against a limit.
    const views = options.downTo === undefined ? await this.#views.evict(options) : [];
    return [...(await this.#cache.evict(options)), ...views];
  }

  /** Removes image and view of a removed snapshot outside the store. */
  async discardMemory({ id }: StoredSnapshot): Promise<void> {
    await this.#cache.discard(id);
    await this.#views.discard(id);
  }

  sizes(snapshot: StoredSnapshot): Promise<SnapshotSizes> {
    return sizesOf({ snapshot, flatImage: this.#cache.path(snapshot.id) });
  }

  /** What removing all of these would free. */
  freedBytes(snapshots: readonly StoredSnapshot[]): Promise<number> {
    return freedBytes(snapshots.map((snapshot) => ({ snapshot, flatImage: this.#cache.path(snapshot.id) })));
  }

  /** Makes a snapshot with the same guest state that depends on no other. */
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

  /** Renames the snapshot first, so that the tag is free at once, then deletes the files. */
  async remove(tag: string): Promise<void> {
    await this.#remove(tag, anything);
  }

  /** Removes a tombstone; a snapshot that has the tag now stays. */
  async removeFailed(tag: string): Promise<void> {
    await this.#remove(tag, isTombstone);
  }

  async #remove(tag: string, mayRemove: (dir: string) => Promise<boolean>): Promise<void> {
    if (!tagPattern.test(tag)) throw notFound(tag);
    const wasFailed = this.#failed.delete(tag);
    const place = join(this.root, tag);
    if (mayRemove !== anything && !wasFailed && !(await mayRemove(place))) return;
    // An unreadable snapshot has no image.
    const known = await this.get(tag).catch(() => undefined);
    const trash = join(this.root, hiddenName(trashPrefix));
    try {
      await rename(place, trash);
    } catch (error) {
      if (!isErrno(error, "ENOENT")) throw error;
      if (wasFailed) return;
      throw notFound(tag);
    }
    if (!(await mayRemove(trash))) {
      await rename(trash, place);
      return;
    }
    this.#snapshots.delete(tag);
    await removeTree(trash);
    if (known) await this.discardMemory(known);
  }
}
