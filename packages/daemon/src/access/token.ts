/** The token of a data directory. It grants the scope admin. */
import { randomBytes } from "node:crypto";
import { chmod, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, writeFileAtomic } from "@forkd/base";
import { advice, AppError, errorMessage } from "@forkd/contract";

export type TokenPlace = {
  readonly dataDir: string;
  /** a file that the operator brings; without it one is made in the data directory */
  readonly file?: string | undefined;
};

export function tokenFile({ dataDir, file }: TokenPlace): string {
  return file ?? join(dataDir, "token");
}

/**
 * Makes the daemon's own file if it is missing and keeps it private; a file that the operator names must
 * exist.
 */
export async function openToken(place: TokenPlace): Promise<string> {
  const file = tokenFile(place);
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT") && place.file === undefined) return makeToken(file);
    const why = errorMessage(error);
    throw new AppError("host_not_ready", `Cannot read the token: ${why}`, {
      remedy: { action: "change_setting", setting: "token_file", to: "a file that the daemon can read" },
      cause: error,
    });
  }
  const token = text.trim();
  const weakness = weaknessOf(token);
  if (weakness !== undefined) {
    const remedy =
      place.file === undefined
        ? "Remove the file to get a new token."
        : "Put the output of `openssl rand -hex 32` there.";
    throw new AppError("host_not_ready", `Cannot use the token in ${file}: ${weakness}`, {
      remedy: advice(remedy),
    });
  }
  if (place.file === undefined && ((await stat(file)).mode & 0o077) !== 0) await chmod(file, 0o600);
  return token;
}

async function makeToken(file: string): Promise<string> {
  const token = randomBytes(32).toString("hex");
  await writeFileAtomic(file, `${token}\n`, 0o600);
  return token;
}

const placeholder =
  /change.?me|replace.?me|place.?holder|your.?(token|key|secret)|example|insert.?here|password|passw0rd|letmein|qwert|dummy|^x+$|todo/i;

/** Why a token is too weak, or undefined. Pure. */
function weaknessOf(token: string): string | undefined {
  if (!/^[\x21-\x7e]{16,512}$/.test(token))
    return "it must be 16 to 512 printable ASCII characters without spaces";
  if (placeholder.test(token)) return "it looks like a placeholder";
  if (new Set(token).size < 8) return "it has fewer than 8 different characters";
  if (/^(.+?)\1+$/.test(token)) return "it repeats itself";
  if (neighbours(token) > 0.6) return "it is a sequence";
  return undefined;
}

/** Share of characters that are the same as, next after or next before the one before them. */
function neighbours(text: string): number {
  let count = 0;
  for (let at = 1; at < text.length; at++)
    if (Math.abs(text.charCodeAt(at) - text.charCodeAt(at - 1)) <= 1) count++;
  return count / (text.length - 1);
}
