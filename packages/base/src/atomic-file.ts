/** Files that are either complete or absent. */
import { randomBytes } from "node:crypto";
import { open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";

export function isErrno(error: unknown, ...codes: string[]): boolean {
  return (
    error instanceof Error && "code" in error && typeof error.code === "string" && codes.includes(error.code)
  );
}

/** Makes what was written to a file or directory durable. */
export async function fsyncPath(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Pieces are written one by one, so that other work runs in between. */
export type FileContent = string | Uint8Array | Iterable<string>;

/**
 * Writes a file with a temporary name beside the target, synced; renaming it completes the write. Returns its
 * path.
 */
export async function writeFileBeside(path: string, data: FileContent, mode = 0o644): Promise<string> {
  const temporary = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    const handle = await open(temporary, "wx", mode);
    try {
      await writeFile(handle, data);
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  return temporary;
}

/**
 * Renames a file from writeFileBeside() to its final name, durably. On failure the file is removed and the
 * earlier file is put back: a failure changes nothing.
 */
export async function giveName(temporary: string, path: string): Promise<void> {
  let before: Before;
  try {
    before = await contentOf(path);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  try {
    await fsyncPath(dirname(path));
  } catch (error) {
    await putBack(path, before);
    throw error;
  }
}

type Before = { bytes: Uint8Array; mode: number } | undefined;

async function contentOf(path: string): Promise<Before> {
  try {
    await using file = await open(path, "r");
    return { bytes: await file.readFile(), mode: (await file.stat()).mode & 0o777 };
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Best effort: the caller sees the first failure in any case. */
async function putBack(path: string, before: Before): Promise<void> {
  try {
    if (before) await rename(await writeFileBeside(path, before.bytes, before.mode), path);
    else await rm(path, { force: true });
  } catch {
    // The file that has the name is complete, even if it is the new one.
  }
}

/** Temporary name beside the target, fsync, rename, fsync of the directory. A failure changes nothing. */
export async function writeFileAtomic(path: string, data: FileContent, mode = 0o644): Promise<void> {
  await giveName(await writeFileBeside(path, data, mode), path);
}

/** The parsed content of a JSON file, or undefined if the file does not exist. */
export async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

export async function removeTree(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true });
}
