/** Turns a layered snapshot into one with the same state that depends on no other snapshot. */
import { fsyncPath } from "@forkd/base";
import { mergeDisks } from "./disk-merge.ts";
import type { Draft } from "./draft.ts";
import { snapshotDisks, snapshotFile, type StoredSnapshot } from "./snapshot.ts";

type CompactStep = "memory" | "disks" | "seal";
export type CompactOptions = {
  signal?: AbortSignal | undefined;
  /** called when a step begins */
  onProgress?: (step: CompactStep) => void;
};

/** Fills the draft and publishes it. `flatMemory` is the complete, final memory image of `from`. */
export async function compactInto(
  draft: Draft,
  from: StoredSnapshot,
  flatMemory: string,
  options: CompactOptions,
): Promise<StoredSnapshot> {
  const { signal, onProgress } = options;
  onProgress?.("memory");
  // A cached image may not be durable yet.
  await fsyncPath(flatMemory);
  await draft.share(draft.path("memory"), flatMemory);
  await draft.share(draft.path("devices"), snapshotFile(from, "devices"));
  await draft.share(draft.path("rootfs"), snapshotFile(from, "rootfs"));
  onProgress?.("disks");
  const { version: _, parent: __, files, ...facts } = from.manifest;
  const known = new Map([
    ...(await draft.inheritAttachments(from)),
    ["devices", files.devices],
    ["rootfs", files.rootfs],
  ]);
  const disks = snapshotDisks(from);
  const [only] = disks;
  if (disks.length === 1 && only !== undefined && files.disks[0] !== undefined) {
    await draft.share(draft.diskPath(0), only);
    known.set(draft.diskPath(0), files.disks[0]);
  } else {
    await mergeDisks(disks, draft.diskPath(0), { signal });
  }
  onProgress?.("seal");
  return draft.commit(
    {
      ...facts,
      ...(facts.require && { verified_as: facts.verified_as ?? from.id }),
      created_at_unix: Math.floor(Date.now() / 1000),
      origin: { kind: "compact", of: from.tag },
    },
    { signal, known },
  );
}
