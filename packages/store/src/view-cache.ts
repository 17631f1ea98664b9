/**
 * Views of the memory of layered snapshots, `<dir>/<id>-<random>.view`: children map the files of the chain
 * through them, so nothing of the memory is copied. They are small, made on first use and removed at any time.
 *
 * A machine keeps the view that it was started with, so a view is never written again. A later process keeps
 * the views that machines use but makes new ones for new machines.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, removeTree, SingleFlight } from "@forkd/base";
import type { Evicted, MemorySource } from "./flat-cache.ts";
import { encodeView, overlay, segmentsOf, type Segment, type ViewedFile } from "./memory-view.ts";
import { memoryBytes } from "./manifest.ts";
import { physicalBytes } from "./sizes.ts";
import { snapshotFile, type StoredSnapshot } from "./snapshot.ts";
import { corrupt } from "./snapshot-errors.ts";
import { stampIn, stampOf, type VerifiedFiles } from "./stamp.ts";
import { verifyMemory, withLayer } from "./verify.ts";

/** Each segment is a mapping of the VMM, of which Linux allows 65,530. */
export const maxViewSegments = 8192;
export const viewNamePattern = /^[0-9a-f]{64}-[0-9a-f]{16}\.view$/;
const idLength = 64;
/** Adjacent extents of a chain become one segment, so that a view may have fewer than its layers. */
const maxExtentsPerSegment = 4;

export type MemoryView = {
  /** in the directory of views */
  name: string;
  path: string;
  stamp: string;
  /** the files that it is made of, the whole memory first */
  files: readonly string[];
};

type Known = MemoryView & { stamps: readonly string[] };

type ViewOptions = {
  verified: VerifiedFiles;
  /** whether a machine uses a view of the snapshot with this id, or is about to */
  isUsed: (id: string) => boolean;
  maxSegments: number;
  /** name → stamp of views that machines use already */
  mapped: ReadonlyMap<string, string>;
};

export class ViewCache {
  readonly #dir: string;
  readonly #options: ViewOptions;
  readonly #known = new Map<string, Known>();
  /** id → length of the chain that has too many segments */
  readonly #tooMany = new Map<string, number>();
  readonly #builds = new SingleFlight<MemoryView | undefined>();

  private constructor(dir: string, options: ViewOptions) {
    this.#dir = dir;
    this.#options = options;
  }

  /** Removes the views of an earlier process, except those in `mapped`. */
  static async open(dir: string, options: ViewOptions): Promise<ViewCache> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(dir)) {
      const isMapped = options.mapped.get(name) === (await stampOf(join(dir, name)));
      if (!isMapped) await removeTree(join(dir, name));
    }
    return new ViewCache(dir, options);
  }

  path(name: string): string {
    return join(this.#dir, name);
  }

  /** The view of the chain's first snapshot; undefined if it would have too many segments. */
  get(source: MemorySource, signal?: AbortSignal): Promise<MemoryView | undefined> {
    const [head] = source.chain;
    if (head === undefined) throw new TypeError("Cannot make a view of the memory: the chain is empty");
    return this.#builds.run(head.id, (shared) => this.#find(source, head, shared), signal);
  }

  async #find(
    source: MemorySource,
    head: StoredSnapshot,
    signal: AbortSignal,
  ): Promise<MemoryView | undefined> {
    const known = this.#known.get(head.id);
    if (known !== undefined && (await isUnchanged(known))) return known;
    if (this.#tooMany.get(head.id) === source.chain.length) return undefined;
    const made = await this.#make(source, head, signal);
    if (made) this.#known.set(head.id, made);
    else this.#tooMany.set(head.id, source.chain.length);
    return made;
  }

  async #make(
    { chain, whole }: MemorySource,
    head: StoredSnapshot,
    signal: AbortSignal,
  ): Promise<Known | undefined> {
    const { verified, maxSegments } = this.#options;
    const owners = chain.slice(0, -1).toReversed();
    const paths = [whole, ...owners.map((owner) => snapshotFile(owner, "layer"))];
    // Taken before the files are checked: the VMM refuses a file that has changed since.
    const files = await Promise.all(paths.map((path) => viewedFile(head, path)));
    if (files[0]?.facts.size !== BigInt(memoryBytes(head.manifest)))
      throw corrupt(head, `the memory at the bottom of its chain has another size`);
    const bottom = chain.at(-1);
    if (bottom?.manifest.files.memory) await verifyMemory(head, bottom, verified, { signal });
    let segments: Segment[] = [];
    let isTooMany = false;
    for (const [index, owner] of owners.entries()) {
      signal.throwIfAborted();
      await verifyMemory(head, owner, verified, { signal });
      await withLayer(head, owner, async ({ extents }) => {
        // Checked first: the layer of a fragmented guest has hundreds of thousands, and merging them takes long.
        if (extents.firsts.length > maxSegments * maxExtentsPerSegment) isTooMany = true;
        if (isTooMany) return;
        segments = overlay(segments, segmentsOf(extents, index + 1));
      });
    }
    if (isTooMany || segments.length > maxSegments) return undefined;
    const used = files.filter((_, index) => index === 0 || segments.some(({ file }) => file === index));
    const numbers = files.map((file) => used.indexOf(file));
    const numbered = segments.map((segment) => ({ ...segment, file: numbers[segment.file] ?? 0 }));
    return this.#write(head.id, used, numbered);
  }

  async #write(id: string, files: readonly ViewedFile[], segments: readonly Segment[]): Promise<Known> {
    const name = `${id}-${randomBytes(8).toString("hex")}.view`;
    const path = this.path(name);
    try {
      await writeFile(path, encodeView(files, segments), { flag: "wx", mode: 0o600 });
      const stamp = await stampOf(path);
      if (stamp === undefined) throw new Error(`Cannot use the view ${path}: the file is missing`);
      return {
        name,
        path,
        stamp,
        files: files.map((file) => file.path),
        stamps: files.map(({ facts }) => stampIn(facts)),
      };
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    }
  }

  /** Removes views that no machine uses and reports their sizes; a dry run only reports. */
  async evict({ dryRun = false }: { dryRun?: boolean } = {}): Promise<Evicted[]> {
    const evicted: Evicted[] = [];
    for (const name of await readdir(this.#dir)) {
      const bytes = await physicalBytes(this.path(name));
      const isUnused = dryRun ? !this.#isUsed(name) : await this.#removeUnused(name);
      if (isUnused && bytes !== undefined) evicted.push({ id: idOf(name), bytes });
    }
    return evicted;
  }

  /** Removes the views of a snapshot that was removed, unless a machine uses them. */
  async discard(id: string): Promise<void> {
    this.#tooMany.delete(id);
    for (const name of await readdir(this.#dir)) if (name.startsWith(id)) await this.#removeUnused(name);
  }

  #isUsed(name: string): boolean {
    return this.#options.isUsed(idOf(name));
  }

  async #removeUnused(name: string): Promise<boolean> {
    // Checked as late as possible, because a machine may have started to use it.
    if (this.#isUsed(name)) return false;
    const id = idOf(name);
    if (this.#known.get(id)?.name === name) this.#known.delete(id);
    await rm(this.path(name), { force: true });
    return true;
  }
}

function idOf(name: string): string {
  return name.slice(0, idLength);
}

async function isUnchanged({ path, stamp, files, stamps }: Known): Promise<boolean> {
  const now = await Promise.all([path, ...files].map((each) => stampOf(each)));
  return now.every((each, index) => each === (index === 0 ? stamp : stamps[index - 1]));
}

async function viewedFile(head: StoredSnapshot, path: string): Promise<ViewedFile> {
  try {
    return { path, facts: await stat(path, { bigint: true }) };
  } catch (error) {
    if (isErrno(error, "ENOENT")) throw corrupt(head, `file "${path}" is missing`, error);
    throw error;
  }
}
