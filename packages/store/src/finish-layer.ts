/** The last step of writing a layer: adds digests and the header to the pages and the extent table. */
import { createHash } from "node:crypto";
import { open, type FileHandle } from "node:fs/promises";
import { chunkDigests, piecesOf, readFully, writeFully } from "./chunk-digests.ts";
import {
  badLayer,
  checkShape,
  coveredHeaderBytes,
  digestBytes,
  encodeHeader,
  ExtentParser,
  headerBytes,
  layoutOf,
  tablePieceBytes,
  type LayerShape,
} from "./layer-format.ts";

export type FinishedLayer = { bytes: number; digest: string; pages: number };

/**
 * The file has a header block of zeros, the pages and the extent table; the caller gives their numbers. The
 * caller syncs the file. After a failure it is not a layer.
 */
export async function finishLayer(
  path: string,
  options: LayerShape & { signal?: AbortSignal | undefined },
): Promise<FinishedLayer> {
  const { memoryBytes, pages, extents, signal } = options;
  const shape = { memoryBytes, pages, extents };
  checkShape(shape);
  const layout = layoutOf(shape);
  await using file = await open(path, "r+");
  const { size } = await file.stat();
  if (size !== layout.digestTable) {
    throw badLayer(
      `${pages} pages in ${extents} extents need ${layout.digestTable} bytes, but the file has ${size}`,
    );
  }
  const header = Buffer.alloc(headerBytes);
  await readFully(file, header, 0);
  if (header.some((byte) => byte !== 0)) throw badLayer("it has a header already");
  encodeHeader(shape).copy(header);
  const index = createHash("sha256").update(header.subarray(0, coveredHeaderBytes));
  const parser = new ExtentParser(shape);
  for (const { position, length } of piecesOf(layout.extentTable, layout.extentTableBytes, tablePieceBytes)) {
    const table = Buffer.allocUnsafe(length);
    await readFully(file, table, position);
    index.update(table);
    parser.add(table);
  }
  parser.end();
  const digests = await digestTable(file, shape, signal);
  const digest = index.update(digests).digest();
  digest.copy(header, coveredHeaderBytes);
  try {
    await writeFully(file, digests, layout.digestTable);
    await writeFully(file, header, 0);
  } catch (error) {
    await file.truncate(size);
    throw error;
  }
  return { bytes: layout.length, digest: digest.toString("hex"), pages };
}

async function digestTable(
  file: FileHandle,
  shape: LayerShape,
  signal: AbortSignal | undefined,
): Promise<Buffer> {
  const { data, dataBytes, digestTableBytes } = layoutOf(shape);
  const table = Buffer.allocUnsafe(digestTableBytes);
  let at = 0;
  for await (const { digest } of chunkDigests(file, piecesOf(data, dataBytes), { signal })) {
    digest.copy(table, at);
    at += digestBytes;
  }
  signal?.throwIfAborted();
  return table;
}
