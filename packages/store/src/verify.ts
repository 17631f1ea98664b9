/** Compares the files of snapshots with their digests. */
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { AppError } from "@forkd/contract";
import { isErrno } from "@forkd/base";
import { digestFile, type FileDigest } from "./digest.ts";
import { openLayer, verifyLayer, type Layer } from "./layer.ts";
import { attachmentRoles, memoryBytes, type AttachmentRole } from "./manifest.ts";
import { snapshotDisks, snapshotFile, type StoredSnapshot } from "./snapshot.ts";
import { corrupt } from "./snapshot-errors.ts";
import { stampOf, type VerifiedFiles } from "./stamp.ts";

export type VerifyOptions = {
  always?: boolean;
  /** also what describes the snapshot; implied by `always` */
  attachments?: boolean;
  signal?: AbortSignal | undefined;
};

/** Checks all files of the chain's first snapshot and the memory files of its ancestors. */
export async function verifyChain(
  chain: readonly StoredSnapshot[],
  verified: VerifiedFiles,
  options: VerifyOptions,
): Promise<void> {
  const [head] = chain;
  if (head === undefined) return;
  const { devices, rootfs, disks } = head.manifest.files;
  await verifyFile(head, head, snapshotFile(head, "devices"), devices, verified, options);
  for (const [index, path] of snapshotDisks(head).entries()) {
    const expected = disks[index];
    if (expected !== undefined) await verifyFile(head, head, path, expected, verified, options);
  }
  await verifyFile(head, head, snapshotFile(head, "rootfs"), rootfs, verified, options);
  for (const owner of chain) await verifyMemory(head, owner, verified, options);
  // No restore reads them, so that a damaged one does not keep a snapshot from being forked.
  if (options.always !== true && options.attachments !== true) return;
  for (const role of attachmentRoles) {
    const expected = head.manifest.files[role];
    if (expected) await verifyFile(head, head, snapshotFile(head, role), expected, verified, options);
  }
}

/** The content of an attachment, which matches its digest; undefined if the snapshot has none. */
export async function readAttachment(
  snapshot: StoredSnapshot,
  role: AttachmentRole,
  signal?: AbortSignal,
): Promise<Buffer | undefined> {
  const expected = snapshot.manifest.files[role];
  if (expected === undefined) return undefined;
  const path = snapshotFile(snapshot, role);
  try {
    const actual = await digestFile(path, signal);
    if (actual.bytes === expected.bytes && actual.digest === expected.digest) {
      const bytes = await readFile(path);
      if (bytes.length === expected.bytes) return bytes;
    }
  } catch (error) {
    if (!isErrno(error, "ENOENT")) throw error;
    throw corrupt(snapshot, `${nameOf(snapshot, snapshot, path)} is missing`, error);
  }
  throw corrupt(snapshot, `${nameOf(snapshot, snapshot, path)} differs from its digest`);
}

/** Checks the flat memory or the layer of `owner`. Errors name `head`, the snapshot that the caller uses. */
export async function verifyMemory(
  head: StoredSnapshot,
  owner: StoredSnapshot,
  verified: VerifiedFiles,
  options: VerifyOptions,
): Promise<void> {
  const { memory, layer } = owner.manifest.files;
  if (memory !== undefined) {
    await verifyFile(head, owner, snapshotFile(owner, "memory"), memory, verified, options);
  }
  if (layer === undefined) return;
  const path = snapshotFile(owner, "layer");
  const stamp = await presentStamp(head, owner, path);
  if (options.always !== true && verified.has(stamp, layer.digest, path)) return;
  verified.delete(stamp);
  await withLayer(head, owner, (opened) => verifyLayer(opened, options));
  verified.add(stamp, layer.digest, path);
}

/** Opens the layer of `owner`. Errors name `head`, the snapshot that the caller uses. */
export async function withLayer(
  head: StoredSnapshot,
  owner: StoredSnapshot,
  work: (layer: Layer) => Promise<void>,
): Promise<void> {
  const path = snapshotFile(owner, "layer");
  try {
    const layer = await openLayer(path, owner.manifest.files.layer?.digest);
    if (layer.memoryBytes !== memoryBytes(owner.manifest)) {
      throw corrupt(head, `${nameOf(head, owner, path)} is for another memory size`);
    }
    await work(layer);
  } catch (error) {
    if (isErrno(error, "ENOENT")) throw corrupt(head, `${nameOf(head, owner, path)} is missing`, error);
    if (!(error instanceof AppError) || error.code !== "snapshot_corrupt" || "tag" in error.details)
      throw error;
    const problem = String(error.details["problem"]);
    throw corrupt(head, `${nameOf(head, owner, path)} is damaged: ${problem}`, error);
  }
}

async function verifyFile(
  head: StoredSnapshot,
  owner: StoredSnapshot,
  path: string,
  expected: FileDigest,
  verified: VerifiedFiles,
  options: VerifyOptions,
): Promise<void> {
  const stamp = await presentStamp(head, owner, path);
  if (options.always !== true && verified.has(stamp, expected.digest, path)) return;
  verified.delete(stamp);
  const actual = await digestFile(path, options.signal);
  if (actual.bytes !== expected.bytes || actual.digest !== expected.digest) {
    throw corrupt(head, `${nameOf(head, owner, path)} differs from its digest`);
  }
  verified.add(stamp, expected.digest, path);
}

/** Whether a file that may be part of any snapshot matches its digest. */
export async function isIntact(
  path: string,
  expected: FileDigest & { kind: "file" | "layer" },
  verified: VerifiedFiles,
  options: { signal?: AbortSignal | undefined },
): Promise<boolean> {
  const stamp = await stampOf(path);
  if (stamp === undefined) return false;
  if (verified.has(stamp, expected.digest, path)) return true;
  try {
    const actual =
      expected.kind === "file" ? await digestFile(path, options.signal) : await wholeLayer(path, options);
    if (actual.bytes !== expected.bytes || actual.digest !== expected.digest) return false;
  } catch (error) {
    if (isErrno(error, "ENOENT") || (error instanceof AppError && error.code === "snapshot_corrupt"))
      return false;
    throw error;
  }
  verified.add(stamp, expected.digest, path);
  return true;
}

async function wholeLayer(path: string, options: { signal?: AbortSignal | undefined }): Promise<FileDigest> {
  const layer = await openLayer(path);
  await verifyLayer(layer, options);
  return layer;
}

async function presentStamp(head: StoredSnapshot, owner: StoredSnapshot, path: string): Promise<string> {
  const stamp = await stampOf(path);
  if (stamp === undefined) throw corrupt(head, `${nameOf(head, owner, path)} is missing`);
  return stamp;
}

function nameOf(head: StoredSnapshot, owner: StoredSnapshot, path: string): string {
  const name = `file "${basename(path)}"`;
  return head === owner ? name : `${name} of its ancestor "${owner.tag}"`;
}
