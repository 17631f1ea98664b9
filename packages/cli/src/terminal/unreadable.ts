/** A file of this host that cannot be read, with the reason. */
import { AppError, errorMessage } from "@forkd/contract/wire";

const reasons: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  EACCES: "permission denied",
  EISDIR: "it is a directory",
  ENOTDIR: "a part of the path is not a directory",
  ELOOP: "too many symbolic links",
};

export function unreadable(path: string, cause: unknown): AppError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  const why = reasons[code] ?? errorMessage(cause);
  return new AppError("file_not_found", `Cannot read "${path}": ${why}`, { cause });
}
