/**
 * Records of snapshots that were not completed. The record of an announced draft names its tag; a tombstone
 * (`<tag>/failed.json`, no manifest) says why there is no snapshot with that tag.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { tagPattern } from "@forkd/contract";
import { fsyncPath, isErrno, readJson, removeTree, writeFileAtomic } from "@forkd/base";
import { manifestName } from "./manifest.ts";
import { stampOf } from "./stamp.ts";

export const draftPrefix = ".draft-";
export const trashPrefix = ".trash-";
/** `.replaced-<random>-<name>`: a snapshot that another one replaces. */
export const replacedPrefix = ".replaced-";
export const draftRecordName = "draft.json";
const failedName = "failed.json";

const draftRecordSchema = z.object({
  tag: z.string().regex(tagPattern),
  branched_from: z.string().optional(),
  created_at_unix: z.number(),
});
type DraftRecord = z.output<typeof draftRecordSchema>;

const tombstoneSchema = z.object({
  reason: z.string(),
  branched_from: z.string().optional(),
  failed_at_unix: z.number(),
});
export type Tombstone = z.output<typeof tombstoneSchema>;

export function hiddenName(prefix: string): string {
  return `${prefix}${randomBytes(8).toString("hex")}`;
}

export async function writeDraftRecord(dir: string, record: DraftRecord): Promise<void> {
  // Not synced, because a branch would wait here for the disk. After a host crash the draft may leave no
  // record.
  await writeFile(join(dir, draftRecordName), `${JSON.stringify(record)}\n`, { mode: 0o600 });
}

/** Whether a directory contains a tombstone and no snapshot. */
export async function isTombstone(dir: string): Promise<boolean> {
  if ((await stampOf(join(dir, manifestName))) !== undefined) return false;
  return (await stampOf(join(dir, failedName))) !== undefined;
}

/** undefined if there is no tombstone. An unreadable tombstone still means that the snapshot failed. */
export async function readTombstone(dir: string): Promise<Tombstone | undefined> {
  const stamp = await stampOf(join(dir, failedName));
  if (stamp === undefined) return undefined;
  const value = await readRecord(join(dir, failedName));
  const result = tombstoneSchema.safeParse(value);
  return result.success
    ? result.data
    : { reason: "the record of its failure cannot be read", failed_at_unix: 0 };
}

/** Writes a tombstone for the tag. Replaces an older tombstone, but never a snapshot. */
export async function writeTombstone(root: string, tag: string, tombstone: Tombstone): Promise<void> {
  const target = join(root, tag);
  const text = `${JSON.stringify(tombstone)}\n`;
  const dir = join(root, hiddenName(draftPrefix));
  try {
    await mkdir(dir, { mode: 0o700 });
    await writeFileAtomic(join(dir, failedName), text, 0o600);
    await rename(dir, target);
    await fsyncPath(root);
  } catch (error) {
    if (!isErrno(error, "ENOTEMPTY", "EEXIST")) throw error;
    if ((await stampOf(join(target, manifestName))) !== undefined) return;
    await writeFileAtomic(join(target, failedName), text, 0o600);
  } finally {
    await removeTree(dir);
  }
}

/**
 * Removes the leftovers of an earlier process from a directory of snapshots. Restores a snapshot that was
 * moved away to be replaced if its replacement was not published.
 */
export async function removeLeftovers(root: string): Promise<void> {
  const names = await readdir(root);
  for (const name of names.filter((each) => each.startsWith(replacedPrefix))) {
    const target = join(root, name.slice(hiddenName(replacedPrefix).length + 1));
    if (target !== root && (await stampOf(target)) === undefined) await rename(join(root, name), target);
    else await removeTree(join(root, name));
  }
  for (const name of names) {
    if (name.startsWith(draftPrefix)) await removeDraft(root, join(root, name));
    if (name.startsWith(trashPrefix)) await removeTree(join(root, name));
  }
}

/**
 * Deletes the files before it writes the tombstone, because the disk may be full, and the record last, so
 * that an interrupted run still leads to a tombstone.
 */
async function removeDraft(root: string, dir: string): Promise<void> {
  const record = draftRecordSchema.safeParse(await readRecord(join(dir, draftRecordName))).data;
  if (record !== undefined) {
    for (const file of await readdir(dir)) if (file !== draftRecordName) await removeTree(join(dir, file));
    await writeTombstone(root, record.tag, {
      reason: "the daemon ended while it was written",
      ...(record.branched_from !== undefined && { branched_from: record.branched_from }),
      failed_at_unix: record.created_at_unix,
    });
  }
  await removeTree(dir);
}

async function readRecord(path: string): Promise<unknown> {
  try {
    return await readJson(path);
  } catch (error) {
    if (error instanceof SyntaxError || isErrno(error, "ENOTDIR")) return undefined;
    throw error;
  }
}
