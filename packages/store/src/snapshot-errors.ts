/** Errors about snapshots, each with a remedy. */
import { AppError } from "@forkd/contract";
import type { Manifest } from "./manifest.ts";

export function notFound(tag: string): AppError {
  return new AppError(
    "snapshot_not_found",
    `Cannot find snapshot "${tag}". forkd images lists what there is`,
    { details: { tag } },
  );
}

export function taken(tag: string): AppError {
  return new AppError(
    "snapshot_exists",
    `Cannot make snapshot "${tag}": the tag is taken. Remove it (forkd rmi ${tag}) or use --force`,
    { details: { tag } },
  );
}

/** `manifest` is absent if it cannot be read. */
export function corrupt(
  snapshot: { tag: string; manifest?: Manifest },
  problem: string,
  cause?: unknown,
): AppError {
  const { tag, manifest } = snapshot;
  const remedy =
    manifest === undefined || manifest.origin.kind === "build"
      ? "Build it again with --force"
      : `Remove it (forkd rmi ${tag}) and make it again`;
  return new AppError("snapshot_corrupt", `Cannot use snapshot "${tag}": ${problem}. ${remedy}`, {
    details: { tag, problem },
    ...(cause !== undefined && { cause }),
  });
}

export function failed(tag: string, reason: string, branchedFrom: string | undefined): AppError {
  return new AppError(
    "snapshot_failed",
    `Cannot use snapshot "${tag}": it failed: ${reason}. Remove it (forkd rmi ${tag}) and branch again`,
    { details: { tag, reason, ...(branchedFrom !== undefined && { branched_from: branchedFrom }) } },
  );
}
