/** A complete snapshot: a directory with a manifest and the files it names. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { z } from "zod";
import { isErrno, openOwnFile, UnsafeFile } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { diskName, fileNames, manifestName, manifestSchema, manifestVersion } from "./manifest.ts";
import type { FileRole, Manifest } from "./manifest.ts";
import { withoutDigest } from "./manifest-text.ts";
import { corrupt, notFound } from "./snapshot-errors.ts";
import { stampOf } from "./stamp.ts";

export type StoredSnapshot = {
  tag: string;
  dir: string;
  /** sha256 of the manifest's bytes, which contain the digests of all files */
  id: string;
  manifest: Manifest;
  /** changes when another snapshot replaces this one */
  stamp: string;
};

export function snapshotFile(snapshot: StoredSnapshot, role: FileRole): string {
  return join(snapshot.dir, fileNames[role]);
}

/** Paths of the disk layers, bottom to top. The root file system is below them. */
export function snapshotDisks(snapshot: StoredSnapshot): string[] {
  return snapshot.manifest.files.disks.map((_, index) => join(snapshot.dir, diskName(index)));
}

export function manifestId(bytes: string | Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Reads the manifest in `dir`; errors name the snapshot `tag`. */
export async function readSnapshot(dir: string, tag: string): Promise<StoredSnapshot> {
  const path = join(dir, manifestName);
  const stamp = await stampOf(path);
  if (stamp === undefined) {
    if ((await stampOf(dir)) === undefined) throw notFound(tag);
    throw corrupt({ tag }, "its manifest is missing");
  }
  let bytes: Buffer;
  try {
    await using file = await openOwnFile(path, { for: "read" });
    bytes = await file.readFile();
  } catch (error) {
    if (isErrno(error, "ENOENT")) throw notFound(tag);
    if (error instanceof UnsafeFile) throw corrupt({ tag }, `its manifest: ${error.problem}`, error);
    throw error;
  }
  return { tag, dir, id: manifestId(bytes), manifest: parseManifest(tag, bytes), stamp };
}

const versionSchema = z.object({ version: z.int() });

/** Checks the text of a manifest. Errors name the snapshot `tag`. */
export function parseManifest(tag: string, bytes: Uint8Array): Manifest {
  const text = Buffer.from(bytes).toString("utf8");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw corrupt({ tag }, `its manifest cannot be read: ${String(error)}`, error);
  }
  const version = versionSchema.safeParse(value).data?.version;
  if (version !== undefined && version !== manifestVersion) {
    const problem = `its manifest has version ${version}, but this forkd reads version ${manifestVersion}`;
    const { code, message, details, remedy } = corrupt({ tag }, problem);
    throw new AppError(code, message, { details: { ...details, manifest_version: version }, remedy });
  }
  const checked = withoutDigest(value, text);
  if (checked === "mismatch") throw corrupt({ tag }, "its manifest does not match its digest");
  const result = manifestSchema.safeParse(checked.rest);
  if (result.success) return result.data;
  throw corrupt({ tag }, `its manifest cannot be read: ${z.prettifyError(result.error)}`, result.error);
}
