/** Opens daemon.log for the output of a daemon that this process starts. */
import { constants } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { advice, AppError } from "@forkd/contract/wire";

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_WRONLY } = constants;

/** Refuses links and other kinds of files: output must not go elsewhere, and a pipe could wait forever. */
export async function openOwnLog(path: string): Promise<FileHandle> {
  const flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  const file = await open(path, flags, 0o600).catch((cause: unknown) => {
    throw unusable(path, cause instanceof Error ? cause.message : String(cause), cause);
  });
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw unusable(path, "it is not a regular file");
}

function unusable(path: string, why: string, cause?: unknown): AppError {
  return new AppError("host_not_ready", `Cannot open the log "${path}": ${why}`, {
    cause,
    details: { file: path },
    remedy: advice("Move the file away and run the command again."),
  });
}
