/** Errors about files of the daemon that cannot be opened: they name the file. */
import { UnsafeFile } from "@forkd/base";
import { advice, AppError, toAppError } from "@forkd/contract";

/** `what` is the content of the file, such as "the settings". */
export function unusableFile(error: unknown, what: string): AppError {
  if (!(error instanceof UnsafeFile)) return toAppError(error);
  const { path, problem } = error;
  return new AppError("host_not_ready", `Cannot open ${what} in "${path}": ${problem}`, {
    cause: error,
    details: { file: path },
    remedy: advice("Move the file away and start the daemon again."),
  });
}
