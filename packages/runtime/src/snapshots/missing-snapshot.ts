/** A snapshot may be removed while it is being used: whoever meets missing files then says what happened. */
import { AppError, toAppError } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";

/** Failures that missing files can look like. */
const looksLikeIt = new Set(["internal", "engine_failed", "snapshot_corrupt"]);

/** The failure itself, or `snapshot_not_found` if the snapshot is no longer there. */
export async function explainMissingSnapshot(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  error: unknown,
): Promise<AppError> {
  const failure = toAppError(error);
  if (!looksLikeIt.has(failure.code) || (await runtime.store.isCurrent(snapshot))) return failure;
  return new AppError(
    "snapshot_not_found",
    `Cannot use snapshot "${snapshot.tag}": it was removed or replaced meanwhile`,
    { details: { tag: snapshot.tag }, remedy: { action: "list_snapshots" }, cause: error },
  );
}

/** Runs work that reads the files of a snapshot. */
export async function withSnapshotFiles<T>(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw await explainMissingSnapshot(runtime, snapshot, error);
  }
}
