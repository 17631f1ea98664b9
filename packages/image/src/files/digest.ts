/** Digests of content. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { throwIfCancelled } from "../context.ts";

/** Part of every digest; raised when the same input gives a different image. */
export const builderVersion = 1;

/** JSON with sorted keys and no spaces: equal values have equal texts. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

export function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}

/** The digest of plain data. */
export function digestOf(value: unknown): string {
  return sha256(canonicalJson(value));
}

export async function sha256File(path: string, signal?: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  try {
    await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash, signal ? { signal } : {});
  } catch (error) {
    throwIfCancelled(signal);
    throw error;
  }
  return hash.digest("hex");
}
