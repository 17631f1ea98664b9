/** The signature of a file URL. Pure. */
import { createHash, timingSafeEqual } from "node:crypto";

type SignedFile = {
  /** exactly as in the query */
  readonly path: string;
  readonly operation: "read" | "write";
  /** "" if the query names none */
  readonly user: string;
  /** in seconds of Unix time, as in the query */
  readonly expiration?: string | undefined;
};

export function signatureOf(file: SignedFile, token: string): string {
  return signer(file)(token);
}

const form = /^v1_[A-Za-z0-9+/]{43}$/;
/** Unix time in seconds; it is hashed once for each sandbox. */
const longestExpiration = 20;

/**
 * Finds the entry whose token makes the signature. What clients may make as long as they like is hashed once,
 * however many entries there are.
 */
export function findSigner<T extends { readonly token: string }>(
  file: SignedFile,
  signature: string,
  entries: Iterable<T>,
): T | undefined {
  if (!form.test(signature) || (file.expiration?.length ?? 0) > longestExpiration) return undefined;
  const sign = signer(file);
  const given = Buffer.from(signature);
  for (const entry of entries) if (timingSafeEqual(Buffer.from(sign(entry.token)), given)) return entry;
  return undefined;
}

function signer({ path, operation, user, expiration }: SignedFile): (token: string) => string {
  const head = createHash("sha256").update(`${path}:${operation}:${user}:`);
  const tail = expiration === undefined ? "" : `:${expiration}`;
  return (token) =>
    `v1_${head
      .copy()
      .update(token + tail)
      .digest("base64")
      .replace(/=+$/, "")}`;
}
