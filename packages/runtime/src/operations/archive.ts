/** Packs a snapshot with its parents into one file, and makes the snapshots of such a file. */
import {
  packSnapshot as pack,
  unpackArchive,
  writeArchive,
  type PackedSnapshot,
  type PackProgress,
  type PlacedSnapshot,
} from "@forkd/archive";
import { Scope } from "@forkd/base";
import type { PackedArchive, ParsedOf, UnpackedArchive } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { describeSnapshot } from "../snapshots/describe.ts";
import { refuseOrphans } from "../snapshots/lineage.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";

type PackRuntime = Pick<Runtime, "blobs" | "branches" | "store" | "work">;
type PackContext = Context & { onProgress?: (progress: PackProgress) => void };

/** Makes the compressed parts, which snapshotArchive() then finds. */
export async function packSnapshot(
  runtime: PackRuntime,
  request: ParsedOf<"packSnapshot">,
  context: PackContext,
): Promise<PackedArchive> {
  const startedAt = performance.now();
  await using packed = await makeBlobs(runtime, request, context);
  const { tag, id, manifest, fileBytes, chainLength } = packed;
  const { bytes } = writeArchive(packed);
  const durationMs = Math.round(performance.now() - startedAt);
  context.log.info({ event: "snapshot.pack", outcome: "ok", tag, bytes, durationMs });
  return {
    tag,
    id,
    digest: manifest.digest,
    level: request.level,
    archive_bytes: bytes,
    file_bytes: fileBytes,
    snapshots: chainLength,
  };
}

/** Resolves when all parts are made, so that an error can still become a status. */
export async function snapshotArchive(
  runtime: PackRuntime,
  request: ParsedOf<"snapshotArchive">,
  context: Context,
): Promise<AsyncIterable<Uint8Array>> {
  const packed = await makeBlobs(runtime, request, context);
  const release = (): void => void packed[Symbol.asyncDispose]();
  context.untilAnswered?.({ [Symbol.dispose]: release });
  return writeArchive(packed).stream.once("close", release);
}

function makeBlobs(
  runtime: PackRuntime,
  { tag, level }: { tag: string; level: number },
  { signal, onProgress }: PackContext,
): Promise<PackedSnapshot> {
  return runtime.work.whileOpen(signal, async (open) => {
    const snapshot = await usableSnapshot(runtime, tag);
    return withSnapshotFiles(runtime, snapshot, () =>
      pack(runtime.store, snapshot, { cache: runtime.blobs, level, signal: open, onProgress }),
    );
  });
}

export function unpackSnapshot(
  runtime: Pick<Runtime, "branches" | "events" | "host" | "pool" | "registry" | "store" | "work">,
  { tag, force = false, content }: ParsedOf<"unpackSnapshot"> & { content: AsyncIterable<Uint8Array> },
  { signal, log }: Context,
): Promise<UnpackedArchive> {
  return runtime.work.whileOpen(signal, async (open) => {
    const startedAt = performance.now();
    await using scope = new Scope();
    let placed: PlacedSnapshot[] = [];
    const made = await unpackArchive(runtime.store, content, {
      tag,
      replace: force,
      signal: open,
      onOpen: async ({ snapshots }) => {
        placed = snapshots;
        for (const each of snapshots.filter(({ exists }) => !exists)) {
          const reserved = runtime.branches.reserve(each.tag, "transfer");
          scope.defer(() => reserved[Symbol.dispose]());
        }
        const head = snapshots.at(-1);
        if (force && head && !head.exists) await refuseOrphans(runtime, head.tag);
      },
    });
    for (const each of placed.filter(({ exists }) => !exists)) {
      await runtime.pool.drop(each.tag);
      runtime.events.snapshot("snapshot.ready", each.tag, { status: "ready" });
    }
    const snapshot = made.at(-1);
    if (!snapshot) throw new Error("Cannot describe what was unpacked: there is nothing");
    const durationMs = Math.round(performance.now() - startedAt);
    log.info({ event: "snapshot.unpack", outcome: "ok", tag: snapshot.tag, durationMs });
    return {
      snapshot: await describeSnapshot(runtime, snapshot),
      chain: placed.map(({ tag: name, id, exists, insteadOf }) => ({
        tag: name,
        id,
        existed: exists,
        ...(insteadOf !== undefined && { instead_of: insteadOf }),
      })),
    };
  });
}
