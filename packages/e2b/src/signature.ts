/** The signature of a file URL. Pure. */
import { createHash } from "node:crypto";

type SignedFile = {
  /** exactly as in the query */
  readonly path: string;
  readonly operation: "read" | "write";
  /** "" if the query names none */
  readonly user: string;
  /** in seconds of Unix time, as in the query */
  readonly expiration?: string | undefined;
};

export function signatureOf({ path, operation, user, expiration }: SignedFile, token: string): string {
  const text = [path, operation, user, token, ...(expiration === undefined ? [] : [expiration])].join(":");
  return `v1_${createHash("sha256").update(text).digest("base64").replace(/=+$/, "")}`;
}
