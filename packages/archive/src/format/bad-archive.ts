/** What is wrong with an archive: `invalid_archive`, with the problem in the details. */
import { advice, AppError } from "@forkd/contract/wire";

export function badArchive(problem: string, cause?: unknown): AppError {
  return new AppError("invalid_archive", `Cannot use the archive: ${problem}`, {
    details: { problem },
    remedy: advice("Get the archive again, or pack it again where the snapshot is."),
    ...(cause !== undefined && { cause }),
  });
}
