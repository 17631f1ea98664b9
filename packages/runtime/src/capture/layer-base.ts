/**
 * The base of a new layer: what the machine was started from, pinned before the machine is paused. Where no
 * layer can be added, the whole memory is saved instead: a chain at its limit refuses neither a branch nor a
 * pause.
 */
import { dirname, join } from "node:path";
import { removeTree } from "@forkd/base";
import { AppError, type BranchMode } from "@forkd/contract";
import {
  maxChainDepth,
  maxLineage,
  snapshotFile,
  type Draft,
  type MemoryParts,
  type StoredSnapshot,
} from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";

/** The files stay usable whatever happens to the sandbox or to the base. */
export type LayerBase = AsyncDisposable & {
  /** what the machine was started from */
  own: StoredSnapshot;
  /** how it is saved: as asked, or `full` if no layer can be added to the base */
  mode: BranchMode;
  /** the tagged snapshot that a layer names as its parent; a saved state with all of its memory has none */
  parent: { tag: string; id: string } | undefined;
  /** with mode full, the memory that the machine started from, as links in the draft */
  memory: MemoryParts | undefined;
  /** layer of the saved state, if the machine was started from one: the new layer is merged with it */
  lower: string | undefined;
};

/**
 * Refuses a capture that would not give a usable snapshot, before the source is touched, and pins the files
 * of the base. The caller holds the lock of the sandbox.
 */
export function pinBase(runtime: Pick<Runtime, "images" | "store">, request: PinRequest): Promise<LayerBase> {
  return withSnapshotFiles(runtime, request.source.base, () => pin(runtime, request));
}

type PinRequest = {
  sandbox: Sandbox;
  source: SandboxMachine;
  draft: Draft;
  mode: BranchMode;
  /** whether no other snapshot can have the base as its parent; default: it is the saved state of the sandbox */
  isPrivate?: boolean | undefined;
  /** whether it is described by what describes the base, as a branch is; default: true */
  inherits?: boolean | undefined;
};

async function pin(
  runtime: Pick<Runtime, "images" | "store">,
  { sandbox, source, draft, mode, ...request }: PinRequest,
): Promise<LayerBase> {
  const own = source.base;
  if (!(await runtime.store.isCurrent(own))) {
    throw new AppError(
      "snapshot_not_found",
      `Cannot capture ${sandbox.id}: its snapshot "${own.tag}" was removed or replaced while it ran, so its changes since then cannot be determined`,
      { details: { tag: own.tag } },
    );
  }
  const { chain, lineage } = await runtime.store.memorySource(own);
  const isPrivate = request.isPrivate ?? sandbox.saved?.snapshot.id === own.id;
  const parent = isPrivate ? own.manifest.parent : { tag: own.tag, id: own.id };
  const saved = isPrivate ? 1 : 0;
  const isAtLimit = chain.length - saved >= maxChainDepth || lineage - saved >= maxLineage;
  const possible = parent === undefined || isAtLimit ? "full" : mode;
  const release = runtime.images.hold(own.id);
  try {
    await draft.share(draft.path("rootfs"), snapshotFile(own, "rootfs"));
    if (request.inherits ?? true) await draft.inheritAttachments(own);
    const lower = isPrivate && possible !== "full" ? join(draft.dir, ".layer-lower") : undefined;
    if (lower !== undefined) await draft.share(lower, snapshotFile(own, "layer"));
    const memory = possible === "full" ? await pinMemory(runtime, draft, own) : undefined;
    return { own, mode: possible, parent, memory, lower, [Symbol.asyncDispose]: async () => release() };
  } catch (error) {
    release();
    throw error;
  }
}

/** Prefix of the links to files of the base, which are removed before the snapshot is sealed. */
const pinnedPrefix = ".memory-";

/** The files stay usable even if their snapshots are removed meanwhile. */
async function pinMemory(
  { store }: Pick<Runtime, "store">,
  draft: Draft,
  own: StoredSnapshot,
): Promise<MemoryParts> {
  await store.verify(own);
  const { chain, whole } = await store.memorySource(own);
  const pin = async (name: string, path: string): Promise<string> => {
    const link = join(draft.dir, `${pinnedPrefix}${name}`);
    return (await draft.link(link, path)) ? link : path;
  };
  const owners = chain.slice(0, -1).toReversed();
  return {
    whole: await pin("whole", whole),
    layers: await Promise.all(
      owners.map(async (owner, index) => ({
        path: await pin(String(index), snapshotFile(owner, "layer")),
        digest: owner.manifest.files.layer?.digest ?? "",
      })),
    ),
  };
}

/** Removes the links that pinBase() has made in the draft. */
export async function unpin(draft: Draft, { lower, memory }: LayerBase): Promise<void> {
  const paths = [lower, memory?.whole, ...(memory?.layers ?? []).map(({ path }) => path)];
  for (const path of paths) if (path !== undefined && dirname(path) === draft.dir) await removeTree(path);
}

/** The parent of an open branch cannot be removed, except by force; that of a build can. */
export async function requireParent(
  runtime: Pick<Runtime, "store">,
  parent: { tag: string; id: string },
): Promise<void> {
  const found = await runtime.store.get(parent.tag).catch(() => undefined);
  if (found?.id === parent.id) return;
  throw new AppError(
    "snapshot_not_found",
    `The snapshot was given up: its parent "${parent.tag}" was removed or replaced meanwhile`,
    { details: { tag: parent.tag } },
  );
}
