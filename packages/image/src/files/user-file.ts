/** Reads files of the user, which are never changed. */
import { open, stat } from "node:fs/promises";
import { AppError, errorMessage } from "@forkd/contract";
import { headBytes } from "./file-kind.ts";

export type FileState = { size: number; mtimeMs: number };

/** The beginning of a file, enough for identify(). */
export async function readHead(path: string): Promise<Uint8Array> {
  const handle = await open(path, "r");
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(headBytes), 0, headBytes, 0);
    return buffer.subarray(0, bytesRead);
  } catch (error) {
    throw unusable(path, `it cannot be read (${errorMessage(error)})`, error);
  } finally {
    await handle.close();
  }
}

/** Throws `invalid_image` when the file has changed. */
export async function requireUnchanged(path: string, before: FileState): Promise<void> {
  const after = await stat(path);
  if (after.size !== before.size || after.mtimeMs !== before.mtimeMs) {
    throw changed(path);
  }
}

export function unusable(path: string, why: string, cause?: unknown): AppError {
  return new AppError("invalid_image", `Cannot use "${path}": ${why}`, { cause });
}

export function changed(path: string): AppError {
  return new AppError("invalid_image", `Cannot use "${path}": it changed while it was read`, {
    remedy: { action: "retry_later" },
  });
}
