/**
 * The chunked digest of a file: sha256 over the concatenated sha256 of each 1 MiB chunk, where a chunk of
 * zeros counts as 32 zero bytes. Holes of a sparse image count as chunks of zeros without being read.
 */
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { dataRanges } from "@forkd/base";
import { chunkBytes, chunkDigests, sha256, type Piece } from "./chunk-digests.ts";
import { touchedChunks } from "./touched-chunks.ts";

const zeroChunk = Buffer.alloc(chunkBytes);
const zeroDigest = Buffer.alloc(32);

export type FileDigest = { bytes: number; digest: string };

export async function digestFile(path: string, signal?: AbortSignal): Promise<FileDigest> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  const total = createHash("sha256");
  let next = 0;
  const skipTo = (chunk: number) => {
    for (; next < chunk; next++) total.update(zeroDigest);
  };
  const pieces = touchedChunks(await dataRanges(path), chunkBytes).map((chunk): Piece => ({
    position: chunk * chunkBytes,
    length: Math.min(chunkBytes, size - chunk * chunkBytes),
  }));
  const hash = (bytes: Buffer) =>
    bytes.equals(zeroChunk.subarray(0, bytes.length)) ? zeroDigest : sha256(bytes);
  for await (const { position, digest } of chunkDigests(file, pieces, { signal, hash })) {
    skipTo(position / chunkBytes);
    total.update(digest);
    next++;
  }
  signal?.throwIfAborted();
  skipTo(Math.ceil(size / chunkBytes));
  return { bytes: size, digest: total.digest("hex") };
}
