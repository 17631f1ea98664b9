/**
 * The chunked digest of a file: sha256 over the concatenated sha256 of each 1 MiB chunk, where a chunk of zeros counts
 * as 32 zero bytes. Holes of a sparse image are chunks of zeros and are not read.
 */
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { dataRanges, touchedChunks } from "./data-ranges.ts";

const chunkBytes = 1 << 20;
const zeroChunk = Buffer.alloc(chunkBytes);
const zeroDigest = Buffer.alloc(32);

export type FileDigest = { bytes: number; digest: string };

export async function digestFile(path: string, signal?: AbortSignal): Promise<FileDigest> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  const total = createHash("sha256");
  const buffer = Buffer.allocUnsafe(chunkBytes);
  let next = 0;
  const skipTo = (chunk: number) => {
    for (; next < chunk; next++) total.update(zeroDigest);
  };
  for (const chunk of touchedChunks(await dataRanges(path), chunkBytes)) {
    signal?.throwIfAborted();
    skipTo(chunk);
    const length = Math.min(chunkBytes, size - chunk * chunkBytes);
    const { bytesRead } = await file.read(buffer, 0, length, chunk * chunkBytes);
    if (bytesRead !== length) throw new Error(`Cannot read ${path}: it became shorter`);
    const bytes = buffer.subarray(0, length);
    const isZero = bytes.equals(zeroChunk.subarray(0, length));
    total.update(isZero ? zeroDigest : createHash("sha256").update(bytes).digest());
    next = chunk + 1;
  }
  skipTo(Math.ceil(size / chunkBytes));
  return { bytes: size, digest: total.digest("hex") };
}
