/**
 * A captured instant → the files of a snapshot, while the source runs again.
 *
 * What is written: a layer over the nearest tagged snapshot, or with mode full the whole memory. The saved state of a paused
 * sandbox is nobody's parent: a layer over it is merged with it into one over the tagged snapshot below.
 */
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppError, type BranchMode } from "@forkd/contract";
import { copySparse, removeTree } from "@forkd/base";
import {
  finishLayer,
  maxChainDepth,
  memoryBytes,
  mergeLayers,
  openLayer,
  snapshotDisks,
  snapshotFile,
  type Draft,
  type FileDigest,
  type ManifestFacts,
  type StoredSnapshot,
} from "@forkd/store";
import { shortenDisk } from "./disk-chain.ts";
import type { Runtime } from "../runtime.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { round, type Instant } from "./take-instant.ts";
import { forkdVersion } from "../version.ts";

/** What a snapshot of this machine is a layer over, pinned: nothing that happens to the sandbox later changes it. */
export type LayerBase = AsyncDisposable & {
  /** what the machine's memory is mapped from */
  own: StoredSnapshot;
  /** the tagged snapshot that a layer names as its parent */
  parent: { tag: string; id: string };
  /** file that the machine maps */
  flat: string;
  /** layer of the saved state, where the machine began from one: a new layer is merged with it */
  lower: string | undefined;
};

/**
 * Refuses what would not give a usable snapshot, before the source is touched, and takes hold of the base's files. Under the
 * sandbox's lock.
 */
export function pinBase(runtime: Runtime, request: PinRequest): Promise<LayerBase> {
  return withSnapshotFiles(runtime, request.source.base, () => pin(runtime, request));
}

type PinRequest = { sandbox: Sandbox; source: SandboxMachine; draft: Draft; mode: BranchMode };

async function pin(runtime: Runtime, { sandbox, source, draft, mode }: PinRequest): Promise<LayerBase> {
  const own = source.base;
  if (!(await runtime.store.isCurrent(own))) {
    throw new AppError(
      "snapshot_not_found",
      `Cannot capture ${sandbox.id}: its snapshot "${own.tag}" was removed or replaced while it ran, and what changed since cannot be told without it`,
      { details: { tag: own.tag } },
    );
  }
  const chain = await runtime.store.chain(own);
  const isPrivate = sandbox.saved?.snapshot.id === own.id;
  const parent = isPrivate ? own.manifest.parent : { tag: own.tag, id: own.id };
  if (!parent) throw new AppError("internal", `The saved state of ${sandbox.id} has no parent`);
  const length = chain.length - (isPrivate ? 1 : 0);
  if (mode !== "full" && length >= maxChainDepth) {
    throw new AppError(
      "chain_too_deep",
      `Cannot add a layer to "${parent.tag}": its chain has ${length} snapshots, and at most ${maxChainDepth} are allowed`,
      {
        details: { tag: parent.tag, chain: length, limit: maxChainDepth },
        remedy: { action: "branch_with_mode", mode: "full" },
      },
    );
  }
  const release = runtime.images.hold(own.id);
  try {
    await draft.share(draft.path("rootfs"), snapshotFile(own, "rootfs"));
    const lower = isPrivate ? join(draft.dir, ".layer-lower") : undefined;
    if (lower !== undefined) await draft.share(lower, snapshotFile(own, "layer"));
    const mapped = await runtime.store.flatMemory(own);
    const link = join(draft.dir, ".flat-base");
    const flat = (await draft.link(link, mapped)) ? link : mapped;
    return { own, parent, flat, lower, [Symbol.asyncDispose]: async () => release() };
  } catch (error) {
    release();
    throw error;
  }
}

export type WriteRequest = {
  sandbox: Sandbox;
  source: SandboxMachine;
  base: LayerBase;
  instant: Instant;
  mode: BranchMode;
  /** pause in milliseconds, for the manifest */
  pauseMs: number;
  /** also make the flat image that children map */
  flat: boolean;
  signal?: AbortSignal | undefined;
};

/** Gives the flat image, in a temporary place, for the store to adopt once the snapshot is published. */
export async function writeInstant(
  runtime: Runtime,
  draft: Draft,
  request: WriteRequest,
): Promise<string | undefined> {
  const { instant, base, mode, sandbox, signal } = request;
  await using _base = base;
  await writeFile(draft.path("devices"), instant.devices, { mode: 0o600 });
  // A layer that nothing was written to was linked ahead and is not part of the disk.
  await removeTree(draft.diskPath(instant.disks.length));
  let flat: string | undefined;
  try {
    if (mode === "full") {
      await copySparse(base.flat, draft.path("memory"));
      await instant.capture.apply(draft.path("memory"));
      await removeTree(draft.path("layer"));
    } else {
      flat = request.flat ? runtime.store.flatScratch() : undefined;
      await writeLayer(draft, request, flat === undefined ? undefined : { from: base.flat, to: flat });
    }
    signal?.throwIfAborted();
    const isShortened = await shortenDisk(draft, instant.disks.length, signal);
    const known = knownDigests(draft, request, isShortened);
    const sealed = await draft.seal(factsOf(runtime, request), { known, ...(signal && { signal }) });
    for (const [index, path] of isShortened ? [] : instant.disks.entries()) {
      const digest = sealed.manifest.files.disks[index];
      if (digest) request.source.frozen.set(path, digest);
    }
    for (const path of [base.lower, join(draft.dir, ".flat-base")])
      if (path !== undefined) await removeTree(path);
    runtime.log.debug({ event: "branch.sealed", sandbox: sandbox.id, tag: draft.tag });
    return flat;
  } catch (error) {
    if (flat !== undefined) await removeTree(flat);
    throw error;
  }
}

async function writeLayer(
  draft: Draft,
  { instant, base, signal }: WriteRequest,
  flat: { from: string; to: string } | undefined,
): Promise<void> {
  const work: Promise<unknown>[] = [];
  const begin = <T>(part: Promise<T>): Promise<T> => {
    work.push(part);
    // Whoever waits for it meets the failure; until then nobody listens.
    part.catch(() => undefined);
    return part;
  };
  let digest: string;
  try {
    const copied = flat && begin(copySparse(flat.from, flat.to));
    const { pages, extents } = await begin(instant.capture.write());
    const finished = begin(
      finishLayer(draft.path("layer"), {
        memoryBytes: memoryBytes(base.own.manifest),
        pages,
        extents,
        ...(signal && { signal }),
      }),
    );
    if (flat) {
      await copied;
      await instant.capture.apply(flat.to);
    }
    ({ digest } = await finished);
  } finally {
    // Nothing may write to what the caller is about to remove.
    await Promise.allSettled(work);
  }
  if (base.lower === undefined) return;
  const upperPath = join(draft.dir, ".layer-upper");
  await rename(draft.path("layer"), upperPath);
  const lower = await openLayer(base.lower, base.own.manifest.files.layer?.digest ?? "");
  await mergeLayers(lower, await openLayer(upperPath, digest), draft.path("layer"));
  await removeTree(upperPath);
}

/** Digests of files that other snapshots have too: they are not read again. */
function knownDigests(
  draft: Draft,
  { base, source, instant }: WriteRequest,
  isShortened: boolean,
): Map<string, FileDigest> {
  const { files } = base.own.manifest;
  const inherited = new Map(
    snapshotDisks(base.own).flatMap((path, index) => {
      const digest = files.disks[index];
      return digest ? [[path, digest] as const] : [];
    }),
  );
  const known = new Map<string, FileDigest>([[draft.path("rootfs"), files.rootfs]]);
  if (isShortened) return known;
  for (const [index, path] of instant.disks.entries()) {
    const digest = inherited.get(path) ?? source.frozen.get(path);
    if (digest) known.set(draft.diskPath(index), digest);
  }
  return known;
}

function factsOf(runtime: Runtime, { base, sandbox, instant, mode, pauseMs }: WriteRequest): ManifestFacts {
  const { version: _, files: __, parent: ___, ...inherited } = base.own.manifest;
  return {
    ...inherited,
    forkd_version: forkdVersion,
    created_at_unix: Math.floor(Date.now() / 1000),
    engine: { name: runtime.engine.name, version: runtime.engine.version },
    env: { ...base.own.manifest.env, ...sandbox.facts.env },
    agent_at_boundary: instant.atBoundary,
    kernels: instant.kernels,
    origin: { kind: "branch", sandbox: sandbox.id, mode, pause_ms: round(pauseMs) },
    ...(mode !== "full" && { parent: base.parent }),
  };
}
