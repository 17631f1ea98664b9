/**
 * The chunked digest of a file: sha256 over the concatenated sha256 of each 1 MiB chunk, where a chunk of zeros counts
 * as 32 zero bytes. Sparse memory and disk images are mostly zeros, which this passes over at memory speed.
 */
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";

const chunkBytes = 1 << 20;
const zeroChunk = Buffer.alloc(chunkBytes);
const zeroDigest = Buffer.alloc(32);

export type FileDigest = { bytes: number; digest: string };

export async function digestFile(path: string, signal?: AbortSignal): Promise<FileDigest> {
  await using file = await open(path, "r");
  const total = createHash("sha256");
  const buffer = Buffer.allocUnsafe(4 * chunkBytes);
  let bytes = 0;
  for (;;) {
    signal?.throwIfAborted();
    const { bytesRead } = await file.read(buffer, 0, buffer.length, bytes);
    if (bytesRead === 0) break;
    // Short reads happen only at the end of a regular file, so chunk boundaries stay aligned.
    for (let start = 0; start < bytesRead; start += chunkBytes) {
      const chunk = buffer.subarray(start, Math.min(start + chunkBytes, bytesRead));
      const isZero = chunk.equals(chunk.length === chunkBytes ? zeroChunk : zeroChunk.subarray(0, chunk.length));
      total.update(isZero ? zeroDigest : createHash("sha256").update(chunk).digest());
    }
    bytes += bytesRead;
  }
  return { bytes, digest: total.digest("hex") };
}
