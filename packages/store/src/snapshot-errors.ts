/** Errors about snapshots, each with a remedy. */
import { AppError, type Remedy } from "@forkd/contract";
import type { Manifest } from "./manifest.ts";

export function notFound(tag: string): AppError {
  return new AppError("snapshot_not_found", `Cannot find snapshot "${tag}"`, {
    details: { tag },
    remedy: { action: "list_snapshots" },
  });
}

export function taken(tag: string): AppError {
  return new AppError("snapshot_exists", `Cannot make snapshot "${tag}": the tag is taken`, {
    details: { tag },
    remedy: { action: "replace_snapshot", tag },
  });
}

/** `manifest` is absent if it cannot be read. */
export function corrupt(
  snapshot: { tag: string; manifest?: Manifest },
  problem: string,
  cause?: unknown,
): AppError {
  const { tag, manifest } = snapshot;
  const isBuilt = manifest === undefined || manifest.origin.kind === "build";
  const remedy: Remedy = { action: isBuilt ? "build_again" : "remake_snapshot", tag };
  return new AppError("snapshot_corrupt", `Cannot use snapshot "${tag}": ${problem}`, {
    details: { tag, problem },
    remedy,
    ...(cause !== undefined && { cause }),
  });
}

export function failed(tag: string, reason: string, branchedFrom: string | undefined): AppError {
  return new AppError("snapshot_failed", `Cannot use snapshot "${tag}": it failed: ${reason}`, {
    details: { tag, reason, ...(branchedFrom !== undefined && { branched_from: branchedFrom }) },
    remedy: { action: "remake_snapshot", tag },
  });
}
