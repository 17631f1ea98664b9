/** The base of a new layer: what the machine was started from, pinned before the machine is paused. */
import { join } from "node:path";
import { AppError, type BranchMode } from "@forkd/contract";
import { maxChainDepth, snapshotFile, type Draft, type StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";

/** The files stay usable whatever happens to the sandbox or to the base. */
export type LayerBase = AsyncDisposable & {
  /** what the machine was started from */
  own: StoredSnapshot;
  /** the tagged snapshot that a layer names as its parent */
  parent: { tag: string; id: string };
  /** file that the machine maps */
  flat: string;
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

type PinRequest = { sandbox: Sandbox; source: SandboxMachine; draft: Draft; mode: BranchMode };

async function pin(
  runtime: Pick<Runtime, "images" | "store">,
  { sandbox, source, draft, mode }: PinRequest,
): Promise<LayerBase> {
  const own = source.base;
  if (!(await runtime.store.isCurrent(own))) {
    throw new AppError(
      "snapshot_not_found",
      `Cannot capture ${sandbox.id}: its snapshot "${own.tag}" was removed or replaced while it ran, so its changes since then cannot be determined`,
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
