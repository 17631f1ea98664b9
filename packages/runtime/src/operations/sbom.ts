/** The packages of a snapshot, as its build found them. */
import { AppError, type ParsedOf } from "@forkd/contract";
import { readAttachment } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";

/** A branch has the list of the build that it came from. */
export async function snapshotSbom(
  runtime: Pick<Runtime, "branches" | "store">,
  { tag }: ParsedOf<"snapshotSbom">,
): Promise<Record<string, unknown>> {
  const snapshot = await usableSnapshot(runtime, tag);
  const bytes = await withSnapshotFiles(runtime, snapshot, () => readAttachment(snapshot, "sbom"));
  if (bytes === undefined)
    throw new AppError(
      "not_found",
      `Snapshot "${tag}" has no list of packages: an older version has built it`,
      {
        details: { tag },
        remedy: { action: "build_again", tag },
      },
    );
  return JSON.parse(bytes.toString("utf8")) as Record<string, unknown>;
}
