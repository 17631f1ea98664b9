/** Paths of clients: `~` is the home of the user, and relative ones count from a directory. Pure. */
import { posix } from "node:path";
import { AppError } from "@forkd/contract";

const maxPathBytes = 4096;

/** An absolute path without `.`, `..` and a slash at its end. */
export function resolvePath(path: string, { home, base = home }: { home: string; base?: string }): string {
  if (path.includes("\0")) throw badPath(path, "it contains NUL");
  if (path.startsWith("~") && path !== "~" && !path.startsWith("~/"))
    throw badPath(path, "only ~ and ~/ stand for a home, that of the user");
  const expanded = path.startsWith("~") ? home + path.slice(1) : path;
  const resolved = posix.resolve("/", home, base, expanded);
  if (Buffer.byteLength(resolved) > maxPathBytes)
    throw badPath(path, `it has more than ${maxPathBytes} bytes`);
  return resolved;
}

function badPath(path: string, why: string): AppError {
  const shown = path.length > 100 ? `${path.slice(0, 100)}…` : path;
  return new AppError("invalid_request", `Cannot use the path ${JSON.stringify(shown)}: ${why}`);
}
