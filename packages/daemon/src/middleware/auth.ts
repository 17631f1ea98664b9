/**
 * Who may call. The unix socket is open to its owner alone (mode 0600) and asks for nothing. TCP asks for the token,
 * and refuses what a page in a browser could send: a Host that is not this machine (DNS rebinding) and an Origin other
 * than the daemon's own.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { chmod, readFile, stat } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { isErrno, writeFileAtomic } from "@forkd/base";
import { AppError } from "@forkd/contract";

export type Via = "unix" | "tcp";

const localHost = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;
const openPaths = new Set(["/healthz"]);

/** Throws `forbidden` or `unauthenticated`. */
export function authorize(incoming: IncomingMessage, via: Via, token: string): void {
  if (via === "unix") return;
  const { host = "", origin, authorization = "" } = incoming.headers;
  if (!localHost.test(host)) {
    throw new AppError(
      "forbidden",
      `Host "${host}" is refused: only localhost, 127.0.0.1 and [::1] are served`,
    );
  }
  if (origin !== undefined && origin.toLowerCase() !== `http://${host.toLowerCase()}`) {
    throw new AppError("forbidden", `Origin "${origin}" is refused`);
  }
  if (openPaths.has((incoming.url ?? "").replace(/\?.*/, ""))) return;
  const given = /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  if (given === undefined) {
    throw new AppError(
      "unauthenticated",
      "A token is needed: send Authorization: Bearer TOKEN (file token in the data directory)",
    );
  }
  if (!isSame(given, token)) throw new AppError("unauthenticated", "The token is wrong");
}

/** Hashing first makes the lengths equal, which the comparison in constant time needs. */
function isSame(left: string, right: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(left), digest(right));
}

/** The token of this data directory; made when there is none. The file is kept readable for its owner only. */
export async function openToken(dataDir: string): Promise<string> {
  const file = join(dataDir, "token");
  try {
    const token = (await readFile(file, "utf8")).trim();
    if (!/^\S{16,512}$/.test(token)) {
      throw new AppError(
        "host_not_ready",
        `The token in ${file} must be 16 to 512 characters without spaces; remove it to get a new one`,
      );
    }
    if (((await stat(file)).mode & 0o077) !== 0) await chmod(file, 0o600);
    return token;
  } catch (error) {
    if (!isErrno(error, "ENOENT")) throw error;
  }
  const token = randomBytes(32).toString("hex");
  await writeFileAtomic(file, `${token}\n`, 0o600);
  return token;
}
