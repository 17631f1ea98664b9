/** Explains errors about missing files when the snapshot was removed while it was used. */
import { AppError, toAppError } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";

/** codes that missing files can cause */
const causedByMissingFiles = new Set(["internal", "engine_failed", "snapshot_corrupt"]);

/** `snapshot_not_found` if the snapshot was removed or replaced, otherwise the error itself. */
export async function explainMissingSnapshot(
  runtime: Pick<Runtime, "store">,
  snapshot: StoredSnapshot,
  error: unknown,
): Promise<AppError> {
  const failure = toAppError(error);
  if (!causedByMissingFiles.has(failure.code) || (await runtime.store.isCurrent(snapshot))) return failure;
  return new AppError(
    "snapshot_not_found",
    `Cannot use snapshot "${snapshot.tag}": it was removed or replaced meanwhile`,
    { details: { tag: snapshot.tag }, remedy: { action: "list_snapshots" }, cause: error },
  );
}

/** Runs work that reads the files of a snapshot, and explains its errors. */
export async function withSnapshotFiles<T>(
  runtime: Pick<Runtime, "store">,
  snapshot: StoredSnapshot,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw await explainMissingSnapshot(runtime, snapshot, error);
  }
}
