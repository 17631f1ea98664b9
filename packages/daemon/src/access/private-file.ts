/** Files with secrets that only their owner may read. */
import type { FileHandle } from "node:fs/promises";
import type { Logger } from "@forkd/base";

/** Sets the mode to 0600 if others may read or write the file, and logs it: they may know its content. */
export async function makePrivate(file: FileHandle, path: string, log: Logger): Promise<void> {
  const mode = (await file.stat()).mode & 0o777;
  if ((mode & 0o077) === 0) return;
  await file.chmod(0o600);
  log.warn(
    { event: "file.private", path, mode: mode.toString(8) },
    `${path} had mode ${mode.toString(8)} and now has 600. Replace its secret if another user may have read it`,
  );
}
