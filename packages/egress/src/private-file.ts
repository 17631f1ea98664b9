/**
 * Files with keys. They are used only if they are regular files that no other user can read or write: another
 * user may know or have chosen what a readable or writable file holds.
 */
import { openOwnFile, UnsafeFile } from "@forkd/base";

/** Throws UnsafeFile, also for a file above `maxBytes`, and ENOENT. */
export async function readPrivateFile(path: string, maxBytes: number): Promise<Buffer> {
  await using file = await openOwnFile(path, { for: "read" });
  const { mode, size } = await file.stat();
  if ((mode & 0o077) !== 0)
    throw new UnsafeFile(
      path,
      `other users can read or write it (mode ${(mode & 0o777).toString(8)}, not 600)`,
    );
  if (size > maxBytes) throw new UnsafeFile(path, `it has ${size} bytes, more than ${maxBytes}`);
  return await file.readFile();
}
