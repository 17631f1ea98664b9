/** Errors about files of the daemon that cannot be opened: they name the file. */
import { UnsafeFile } from "@forkd/base";
import { AppError, toAppError } from "@forkd/contract";

/** `what` is the content of the file, such as "the settings". */
export function unusableFile(error: unknown, what: string): AppError {
  if (!(error instanceof UnsafeFile)) return toAppError(error);
  const { path, problem } = error;
  return new AppError(
    "host_not_ready",
    `Cannot open ${what} in "${path}": ${problem}. Move it away and start the daemon again`,
    { cause: error, details: { file: path } },
  );
}
