/**
 * Makes snapshots from blobs. The caller brings the chunks that are missing, in any order and several at a time;
 * every chunk is compared with its digest before it is decompressed, and every file with its digest before a
 * snapshot has its tag.
 */
import { open, statfs } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { removeTree, Scope, Semaphore } from "@forkd/base";
import { maxChainDepth, type Draft, type Manifest, type Store, type StoredSnapshot } from "@forkd/store";
import { badArchive } from "../format/bad-archive.ts";
import type { Descriptor } from "../format/descriptor.ts";
import { chunkBytes, pageBytes } from "../format/limits.ts";
import { bytesOfChunk } from "../format/page-map.ts";
import { Journal } from "./journal.ts";
import { planPages, type PagePlan } from "./page-plan.ts";
import { placesOf, type Place } from "./places.ts";
import { readParts, type ArchiveParts, type BlobSource } from "./read-parts.ts";
import { UnpackThread } from "./unpack-thread.ts";

export type UnpackOptions = {
  /** of the snapshot that was packed */
  tag: string;
  /** replace another snapshot that has the tag */
  replace?: boolean;
  /** keep what was written if the transfer is interrupted, and continue there next time */
  resumable?: boolean;
  signal?: AbortSignal | undefined;
};

/** A part of a pages blob. */
export type ChunkRef = {
  /** digest of the blob */
  blob: string;
  file: number;
  index: number;
  offset: number;
  length: number;
};

/** A snapshot of the archive and the tag that it has or gets. */
export type PlacedSnapshot = {
  tag: string;
  id: string;
  /** the same snapshot has the tag already */
  exists: boolean;
  /** the tag by which its child names it, which another snapshot has */
  insteadOf: string | undefined;
  manifest: Manifest;
};

/** Chunks at the same time; each takes space for itself and its pages. */
const atOnce = Math.min(availableParallelism(), 8);
/** Long chains need a whole memory in between. */
const imageEvery = maxChainDepth - 2;
/** Transfers of one process that can continue: two of the same would write the same files. */
const running = new Set<string>();

type Parts = ArchiveParts & {
  store: Store;
  places: Place[];
  plan: PagePlan;
  /** path of each file of the chain that is here */
  local: Map<number, string>;
  dir: string;
  scope: Scope;
  thread: UnpackThread;
  journal: Journal | undefined;
  missing: Map<string, ChunkRef>;
  /** whether the next attempt can continue with what is in the directory */
  kept: { isUseful: boolean };
};

export class Unpacker implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #options: UnpackOptions;
  readonly #turns = new Semaphore(atOnce);

  private constructor(parts: Parts, options: UnpackOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  /** Reads and checks everything but the pages. Writes nothing but empty files in a hidden directory. */
  static async open(store: Store, source: BlobSource, options: UnpackOptions): Promise<Unpacker> {
    const { signal } = options;
    const parts = await readParts(source, signal);
    const { config, maps, oci } = parts;
    const places = await placesOf(store, config.snapshots, {
      tag: options.tag,
      replace: options.replace ?? false,
    });
    const wanted = places.filter(({ existing }) => !existing);
    const needed = new Set(wanted.flatMap(({ snapshot }) => [...snapshot.files.values()]));
    const local = await findLocal(store, parts, needed.size > 0, signal);
    const built = new Set([...needed].filter((file) => !local.has(file)));
    const plan = planPages(maps, built, local);
    await using scope = new Scope();
    const key = options.resumable === true ? oci.digest.slice("sha256:".length) : undefined;
    if (key !== undefined) scope.defer(reserve(store, key, options.tag));
    const dir = await store.staging(key);
    const kept = { isUseful: false };
    scope.defer(async () => {
      if (!kept.isUseful) await removeTree(dir);
    });
    const names = [...built].map((file) => nameOf(parts, file));
    const written = key === undefined ? undefined : await Journal.read(dir, names);
    kept.isUseful = written !== undefined;
    if (written === undefined) await emptyDirectory(store, dir, key);
    const missing = chunksOf(parts, plan, written);
    await requireSpace(dir, plan, { chunks: missing.size, isFresh: written === undefined });
    const files = maps.map(({ fileBytes: bytes }, file) => ({ path: join(dir, nameOf(parts, file)), bytes }));
    for (const file of built) await prepare(files[file]?.path ?? "", files[file]?.bytes ?? 0);
    const thread = scope.use(new UnpackThread({ dir, files }));
    const journal =
      key === undefined ? undefined : scope.use(await Journal.open(dir, names, { fresh: !written }));
    return new Unpacker(
      { ...parts, store, places, plan, local, dir, scope: scope.keep(), thread, journal, missing, kept },
      options,
    );
  }

  /** sha256:… of the OCI manifest */
  get digest(): string {
    return this.#parts.oci.digest;
  }

  /** The manifest of the snapshot that was packed: the top of its chain. */
  get manifest(): Manifest {
    const top = this.#parts.config.snapshots.at(-1);
    if (!top) throw new Error("The chain is empty");
    return top.manifest;
  }

  get annotations(): Readonly<Record<string, string>> {
    return this.#parts.oci.annotations;
  }

  /** The snapshots of the chain from the bottom, with the tags that they have or get. */
  get snapshots(): PlacedSnapshot[] {
    return this.#parts.places.map(({ tag, snapshot, existing, insteadOf }) => ({
      tag,
      id: snapshot.id,
      exists: existing !== undefined,
      insteadOf,
      manifest: snapshot.manifest,
    }));
  }

  /** Chunks that were not put yet, in the order of the blobs. */
  missingChunks(): ChunkRef[] {
    return [...this.#parts.missing.values()];
  }

  /** The same, by blob. */
  missingBlobs(): { blob: Descriptor; chunks: ChunkRef[] }[] {
    const byFile = new Map<number, ChunkRef[]>();
    for (const chunk of this.missingChunks()) {
      const chunks = byFile.get(chunk.file);
      if (chunks) chunks.push(chunk);
      else byFile.set(chunk.file, [chunk]);
    }
    return [...byFile].flatMap(([file, chunks]) => {
      const blob = this.#parts.pages[file];
      return blob ? [{ blob, chunks }] : [];
    });
  }

  /** Digests of everything that belongs to the snapshot. */
  get blobDigests(): ReadonlySet<string> {
    const { digest, config, layers } = this.#parts.oci;
    return new Set([digest, config.digest, ...layers.map((layer) => layer.digest)]);
  }

  /** Writes one of missingChunks(). Several may be put at a time; the same chunk only once. */
  async put(chunk: ChunkRef, bytes: Uint8Array): Promise<void> {
    const { missing, maps, plan, thread, journal, kept } = this.#parts;
    const key = `${chunk.file} ${chunk.index}`;
    const map = maps[chunk.file];
    if (!map || !missing.has(key)) throw new Error(`Cannot put chunk ${key}: it is not missing`);
    const name = `chunk ${chunk.index} of blob ${chunk.blob}`;
    if (bytes.length !== chunk.length)
      throw badArchive(`${name} has ${bytes.length} bytes instead of ${chunk.length}`);
    const at = chunk.index * 32;
    const sha256 = map.chunkDigests.subarray(at, at + 32).toString("hex");
    const targets = plan.chunks.get(chunk.file)?.[chunk.index]?.take() ?? new Uint32Array();
    await this.#turns.run(async () => {
      this.#options.signal?.throwIfAborted();
      const expected = { sha256, bytes: bytesOfChunk(map, chunk.index), name };
      await thread.call({ kind: "chunk", bytes, expected, targets });
    });
    missing.delete(key);
    if (!journal) return;
    await journal.add(chunk.file, chunk.index);
    kept.isUseful = true;
  }

  /** Compares all files with their digests and gives the snapshots their tags, from the bottom of the chain. */
  async finish(): Promise<StoredSnapshot[]> {
    const { missing, plan, local, thread, dir } = this.#parts;
    if (missing.size > 0) throw badArchive(`${missing.size} of its chunks are missing`);
    for (const [file, targets] of plan.copies) {
      await thread.call({ kind: "copy", from: local.get(file) ?? "", targets });
    }
    try {
      const published = await this.#publish();
      await removeTree(dir);
      return published;
    } catch (error) {
      const isDamaged = error instanceof AppError && error.code === "invalid_archive";
      // What was kept does not lead to the snapshot, so the next attempt begins again.
      if (isDamaged) await removeTree(dir);
      throw error;
    }
  }

  async #publish(): Promise<StoredSnapshot[]> {
    const { places, store } = this.#parts;
    await using scope = new Scope();
    const drafts: (Draft | undefined)[] = [];
    for (const place of places) {
      const draft = place.existing ? undefined : scope.use(await this.#draft(place));
      drafts.push(draft);
      if (draft) await this.#seal(draft, place);
    }
    this.#options.signal?.throwIfAborted();
    const published: StoredSnapshot[] = [];
    await using undo = new Scope();
    for (const [index, { existing }] of places.entries()) {
      const snapshot = existing ?? (await drafts[index]?.publish());
      if (!snapshot) throw new Error(`Cannot publish snapshot ${index} of the chain`);
      if (!existing) undo.defer(() => store.remove(snapshot.tag));
      published.push(snapshot);
      if (index % imageEvery === imageEvery - 1) await store.keepImage(await store.get(snapshot.tag));
    }
    undo.keep();
    return published;
  }

  #draft({ tag, snapshot }: Place): Promise<Draft> {
    const isHead = snapshot === this.#parts.places.at(-1)?.snapshot;
    return this.#parts.store.draft(tag, { replace: isHead && this.#options.replace === true });
  }

  async #seal(draft: Draft, { snapshot }: Place): Promise<void> {
    const { local, dir } = this.#parts;
    for (const [name, file] of snapshot.files) {
      const path = local.get(file) ?? join(dir, nameOf(this.#parts, file));
      await draft.share(join(draft.dir, name), path);
    }
    try {
      await draft.adopt(snapshot.text, { signal: this.#options.signal });
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "snapshot_corrupt") throw error;
      const problem = error.details["problem"];
      throw badArchive(typeof problem === "string" ? problem : error.message, error);
    }
  }

  /** Removes what was written, unless the transfer can continue. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.scope[Symbol.asyncDispose]();
  }
}

function nameOf({ config }: ArchiveParts, file: number): string {
  const { kind = "file", digest = "" } = config.files[file] ?? {};
  return `${kind}-${digest}`;
}

async function findLocal(
  store: Store,
  { config }: ArchiveParts,
  isNeeded: boolean,
  signal: AbortSignal | undefined,
): Promise<Map<number, string>> {
  const found = new Map<number, string>();
  if (!isNeeded) return found;
  const files = await store.localFiles();
  for (const [index, file] of config.files.entries()) {
    const path = await files.find(file, { signal });
    if (path !== undefined) found.set(index, path);
  }
  return found;
}

function chunksOf(
  { maps, pages }: ArchiveParts,
  plan: PagePlan,
  written: ReadonlySet<string> | undefined,
): Map<string, ChunkRef> {
  const missing = new Map<string, ChunkRef>();
  for (const [file, { chunkLengths }] of maps.entries()) {
    const columns = plan.chunks.get(file);
    let offset = 0;
    for (const [index, length] of chunkLengths.entries()) {
      const key = `${file} ${index}`;
      const blob = pages[file]?.digest ?? "";
      const isNeeded = (columns?.[index]?.length ?? 0) > 0;
      if (isNeeded && written?.has(key) !== true) missing.set(key, { blob, file, index, offset, length });
      offset += length;
    }
  }
  return missing;
}

function reserve(store: Store, key: string, tag: string): () => void {
  const name = `${store.root}:${key}`;
  if (running.has(name)) {
    throw new AppError("snapshot_writing", `Cannot fetch snapshot "${tag}": it is being fetched already`, {
      details: { tag },
      remedy: { action: "retry_later" },
    });
  }
  running.add(name);
  return () => void running.delete(name);
}

/** Removes what belongs to another plan. */
async function emptyDirectory(store: Store, dir: string, key: string | undefined): Promise<void> {
  if (key === undefined) return;
  await removeTree(dir);
  await store.staging(key);
}

/** All of it has holes until its pages are written. */
async function prepare(path: string, bytes: number): Promise<void> {
  const file = await open(path, "a", 0o600);
  try {
    await file.truncate(bytes);
  } finally {
    await file.close();
  }
}

/** An archive of a few bytes can have a file that fills the disk. */
async function requireSpace(
  dir: string,
  { pages }: PagePlan,
  { chunks, isFresh }: { chunks: number; isFresh: boolean },
): Promise<void> {
  if (!isFresh) return;
  const needed = pages * pageBytes + Math.min(chunks, atOnce) * 2 * chunkBytes;
  const { bavail, bsize } = await statfs(dir);
  if (needed <= bavail * bsize) return;
  throw new AppError(
    "disk_full",
    `Cannot unpack the snapshot: its files need ${needed} bytes, and ${bavail * bsize} are free`,
    { details: { needed_bytes: needed, free_bytes: bavail * bsize }, remedy: { action: "free_disk" } },
  );
}
