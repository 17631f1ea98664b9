/** Digests of blobs and manifests: `sha256:HEX`. */
import { createHash, type Hash } from "node:crypto";

const forms: Readonly<Record<string, RegExp>> = {
  sha256: /^sha256:[0-9a-f]{64}$/,
  sha512: /^sha512:[0-9a-f]{128}$/,
};

export function isDigest(text: string): boolean {
  return Object.values(forms).some((form) => form.test(text));
}

export function digestOf(bytes: Uint8Array | string): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** A hash of the kind that a digest names. */
export function hashFor(digest: string): Hash {
  return createHash(algorithmOf(digest));
}

export function matches(digest: string, hash: Hash): boolean {
  return `${algorithmOf(digest)}:${hash.digest("hex")}` === digest;
}

function algorithmOf(digest: string): string {
  return digest.slice(0, digest.indexOf(":"));
}
