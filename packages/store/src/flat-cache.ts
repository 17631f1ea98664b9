/**
 * Flat memory images of layered snapshots, `<dir>/<id>`: built from the chain on first use, evicted at any
 * time. Machines map them where they cannot use a view (view-cache.ts).
 *
 * A process trusts an image that it built as long as stat() shows no change. A later process cannot know
 * whether the host crashed in between. Reading the whole file to find out costs as much as building it again,
 * so it removes the image. A machine that still maps the file proves that the host did not crash.
 */
import { link, mkdir, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { copySparse, isErrno, removeTree, SingleFlight, type Logger } from "@forkd/base";
import { applyLayer } from "./layer.ts";
import type { StoredSnapshot } from "./snapshot.ts";
import { physicalBytes } from "./sizes.ts";
import { stampOf, type VerifiedFiles } from "./stamp.ts";
import { hiddenName } from "./tombstone.ts";
import { verifyMemory, withLayer } from "./verify.ts";

const scratchPrefix = ".flat-";
const idPattern = /^[0-9a-f]{64}$/;

export type Evicted = { id: string; bytes: number };
export type CacheLimits = {
  /** total size of all images above which the least recently used ones are evicted */
  maxBytes: number;
  /** whether a machine maps the image of the snapshot with this id, or is about to */
  isUsed: (id: string) => boolean;
};
/** What the memory of a snapshot is built from. */
export type MemorySource = {
  /** from the snapshot down to the nearest one with a file of its whole memory */
  chain: readonly StoredSnapshot[];
  /** that file */
  whole: string;
};
export type EvictOptions = {
  /** only report */
  dryRun?: boolean;
  /** evict, least recently used first, only until all images together take no more than this */
  downTo?: number;
  /** id of an image to keep */
  except?: string;
};

export class FlatCache {
  readonly dir: string;
  readonly #log: Logger;
  readonly #limits: CacheLimits;
  readonly #verified: VerifiedFiles;
  /** id → stamp of the images that this process built or machines map; least recently used first */
  readonly #trusted = new Map<string, string>();
  readonly #builds = new SingleFlight<string>();
  /** images that a build may start from */
  readonly #sources = new Map<string, number>();
  /** temporary files of this process */
  readonly #scratches = new Set<string>();

  private constructor(dir: string, limits: CacheLimits, verified: VerifiedFiles, log: Logger) {
    this.dir = dir;
    this.#limits = limits;
    this.#verified = verified;
    this.#log = log;
  }

  /** Removes the files of an earlier process, except the images in `mapped` (id → stamp). */
  static async open(
    dir: string,
    limits: CacheLimits,
    verified: VerifiedFiles,
    log: Logger,
    mapped: ReadonlyMap<string, string> = new Map(),
  ): Promise<FlatCache> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const cache = new FlatCache(dir, limits, verified, log);
    for (const name of await readdir(dir)) {
      const stamp = await stampOf(join(dir, name));
      if (stamp !== undefined && mapped.get(name) === stamp) cache.#trusted.set(name, stamp);
      else await removeTree(join(dir, name));
    }
    return cache;
  }

  /** called when an image was built from layers, with the duration in seconds */
  onBuilt: ((seconds: number) => void) | undefined;

  path(id: string): string {
    return join(this.dir, id);
  }

  #scratch(): string {
    const path = join(this.dir, hiddenName(scratchPrefix));
    this.#scratches.add(path);
    return path;
  }

  /** Returns the path of the image of the chain's first snapshot. */
  get(source: MemorySource, signal?: AbortSignal): Promise<string> {
    const [head] = source.chain;
    if (head === undefined) throw new TypeError("Cannot build a memory image: the chain is empty");
    return this.#builds.run(
      head.id,
      (shared) => this.#using(source.chain, () => this.#build(source, head, shared)),
      signal,
    );
  }

  async #build({ chain, whole }: MemorySource, head: StoredSnapshot, signal: AbortSignal): Promise<string> {
    const path = this.path(head.id);
    if (await this.#isValid(head)) return path;
    const last = chain.length - 1;
    let base = Math.min(1, last);
    while (base < last && !(await this.#isValid(chain[base]))) base++;
    const startedAt = performance.now();
    const from = chain[base] ?? head;
    if (from.manifest.files.memory) await verifyMemory(head, from, this.#verified, { signal });
    const scratch = this.#scratch();
    try {
      if (last === 0) await linkOrCopy(whole, scratch);
      else await copySparse(base === last ? whole : this.path(from.id), scratch);
      for (const owner of chain.slice(0, base).toReversed()) {
        signal.throwIfAborted();
        await withLayer(head, owner, (layer) => applyLayer(layer, scratch, { signal }));
      }
      signal.throwIfAborted();
      await this.#install(head, scratch);
      this.onBuilt?.((performance.now() - startedAt) / 1000);
    } catch (error) {
      await rm(scratch, { force: true });
      throw error;
    } finally {
      this.#scratches.delete(scratch);
    }
    return path;
  }

  async #install(snapshot: StoredSnapshot, temporary: string): Promise<void> {
    const path = this.path(snapshot.id);
    await rename(temporary, path);
    const stamp = await stampOf(path);
    if (stamp === undefined)
      throw new Error(`Cannot use the image for "${snapshot.tag}": the file is missing`);
    this.#use(snapshot.id, stamp);
    // The caller is about to use the new image.
    await this.evict({ downTo: this.#limits.maxBytes, except: snapshot.id });
  }

  async #isValid(snapshot: StoredSnapshot | undefined): Promise<boolean> {
    if (snapshot === undefined || snapshot.manifest.files.layer === undefined) return false;
    const { id, tag } = snapshot;
    const trusted = this.#trusted.get(id);
    if (trusted === undefined) return false;
    const stamp = await stampOf(this.path(id));
    if (stamp === trusted) {
      this.#use(id, stamp);
      return true;
    }
    if (stamp !== undefined) this.#log.warn({ event: "cache.changed", snapshot: tag });
    await this.#remove(id);
    return false;
  }

  #use(id: string, stamp: string): void {
    this.#trusted.delete(id);
    this.#trusted.set(id, stamp);
  }

  /** Keeps the images of the chain while `work` runs. */
  async #using<T>(chain: readonly StoredSnapshot[], work: () => Promise<T>): Promise<T> {
    for (const { id } of chain) this.#sources.set(id, (this.#sources.get(id) ?? 0) + 1);
    try {
      return await work();
    } finally {
      for (const { id } of chain) {
        const left = (this.#sources.get(id) ?? 1) - 1;
        if (left === 0) this.#sources.delete(id);
        else this.#sources.set(id, left);
      }
    }
  }

  /** Removes unused images and reports their sizes. */
  async evict({ dryRun = false, downTo = 0, except }: EvictOptions = {}): Promise<Evicted[]> {
    if (!dryRun) await this.#removeScratches((path) => !this.#scratches.has(path));
    const order = [...this.#trusted.keys()];
    const ids = (await readdir(this.dir)).filter((name) => idPattern.test(name));
    const images: Evicted[] = [];
    for (const id of ids.sort((a, b) => order.indexOf(a) - order.indexOf(b))) {
      // Another call may have evicted it since readdir().
      const bytes = await physicalBytes(this.path(id));
      if (bytes !== undefined) images.push({ id, bytes });
    }
    let total = images.reduce((sum, { bytes }) => sum + bytes, 0);
    const evicted: Evicted[] = [];
    for (const image of images) {
      if (downTo > 0 && total <= downTo) break;
      // Checked as late as possible, because a machine may have started to use the image.
      if (image.id === except || this.#sources.has(image.id) || this.#limits.isUsed(image.id)) continue;
      if (!dryRun) await this.#remove(image.id);
      total -= image.bytes;
      evicted.push(image);
    }
    return evicted;
  }

  /** Removes the image of a snapshot that was removed. */
  async discard(id: string): Promise<void> {
    if (!this.#sources.has(id) && !this.#limits.isUsed(id)) await this.#remove(id);
  }

  async #remove(id: string): Promise<void> {
    this.#trusted.delete(id);
    await rm(this.path(id), { force: true });
  }

  async #removeScratches(isStale: (path: string) => boolean): Promise<void> {
    for (const name of await readdir(this.dir)) {
      const path = join(this.dir, name);
      if (name.startsWith(scratchPrefix) && isStale(path)) await rm(path, { force: true });
    }
  }
}

/** The target is not written to any more. */
async function linkOrCopy(source: string, target: string): Promise<void> {
  try {
    await link(source, target);
  } catch (error) {
    if (!isErrno(error, "EXDEV", "EPERM", "EMLINK")) throw error;
    await copySparse(source, target);
  }
}
