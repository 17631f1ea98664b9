/**
 * A memory layer on disk: the pages that differ from the parent's flat image. Opening checks everything
 * except the pages; reading checks every chunk of pages against its digest.
 */
import { createHash } from "node:crypto";
import { write } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { chunkDigests, piecesOf, readFully, writeFully } from "./chunk-digests.ts";
import {
  badLayer,
  coveredHeaderBytes,
  digestBytes,
  ExtentParser,
  headerBytes,
  layoutOf,
  pageBytes,
  parseHeader,
  tablePieceBytes,
  type Extents,
} from "./layer-format.ts";

const writesAtOnce = 64;

export type Layer = {
  path: string;
  /** length of the file */
  bytes: number;
  /** index digest, hex */
  digest: string;
  /** length of the flat image */
  memoryBytes: number;
  pages: number;
  extents: Extents;
  /** sha256 of each chunk of the data area, one after the other */
  chunkDigests: Buffer;
};

/** Without `expectedDigest`, only checks that the layer is consistent. */
export async function openLayer(path: string, expectedDigest?: string): Promise<Layer> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  if (size < headerBytes) throw badLayer(`it has only ${size} bytes`);
  const header = Buffer.alloc(headerBytes);
  await readFully(file, header, 0);
  const { shape, digest } = parseHeader(header, size);
  const layout = layoutOf(shape);
  const index = createHash("sha256").update(header.subarray(0, coveredHeaderBytes));
  const parser = new ExtentParser(shape);
  for (const { position, length } of piecesOf(layout.extentTable, layout.extentTableBytes, tablePieceBytes)) {
    const table = Buffer.allocUnsafe(length);
    await readFully(file, table, position);
    index.update(table);
    parser.add(table);
  }
  const digestTable = Buffer.allocUnsafe(layout.digestTableBytes);
  for (const { position, length } of piecesOf(layout.digestTable, layout.digestTableBytes)) {
    const at = position - layout.digestTable;
    const table = digestTable.subarray(at, at + length);
    await readFully(file, table, position);
    index.update(table);
  }
  if (!index.digest().equals(digest)) throw badLayer("its tables differ from its index digest");
  const hex = digest.toString("hex");
  if (expectedDigest !== undefined && hex !== expectedDigest) throw badLayer("it is not the expected layer");
  return {
    path,
    bytes: size,
    digest: hex,
    memoryBytes: shape.memoryBytes,
    pages: shape.pages,
    extents: parser.end(),
    chunkDigests: digestTable,
  };
}

/** Pages that are adjacent in memory and in the same chunk. */
export type PageRun = { firstPage: number; bytes: Buffer };

/** Yields the pages of each chunk after checking its digest. The bytes are valid until the next call. */
export async function* readPages(layer: Layer, signal?: AbortSignal): AsyncGenerator<PageRun[]> {
  await using file = await open(layer.path, "r");
  const { firsts, counts } = layer.extents;
  let extent = 0;
  /** pages of that extent that were yielded already */
  let taken = 0;
  let chunk = 0;
  const pieces = piecesOf(headerBytes, layer.pages * pageBytes);
  for await (const { bytes, digest } of chunkDigests(file, pieces, { signal })) {
    const at = chunk++ * digestBytes;
    if (!digest.equals(layer.chunkDigests.subarray(at, at + digestBytes))) {
      throw badLayer(`chunk ${chunk - 1} of its pages differs from its digest`);
    }
    const runs: PageRun[] = [];
    for (let done = 0; done < bytes.length;) {
      const left = (counts[extent] ?? 0) - taken;
      const length = Math.min(left * pageBytes, bytes.length - done);
      runs.push({ firstPage: (firsts[extent] ?? 0) + taken, bytes: bytes.subarray(done, done + length) });
      done += length;
      taken += length / pageBytes;
      if (length === left * pageBytes) {
        extent++;
        taken = 0;
      }
    }
    yield runs;
  }
}

/** Reads every page and throws if a chunk differs from its digest. */
export async function verifyLayer(
  layer: Layer,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  for await (const _ of readPages(layer, options.signal)) continue;
}

/** Copies the pages into a flat image. */
export async function applyLayer(
  layer: Layer,
  targetPath: string,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  await using target = await open(targetPath, "r+");
  const { size } = await target.stat();
  if (size !== layer.memoryBytes) {
    throw badLayer(`it is for a memory of ${layer.memoryBytes} bytes, but the image has ${size}`);
  }
  for await (const runs of readPages(layer, options.signal)) {
    for (let at = 0; at < runs.length; at += writesAtOnce) {
      await writeRuns(target, runs.slice(at, at + writesAtOnce));
    }
  }
}

/** Waits for all writes. Uses callbacks, because a run may be one page and promises cost twice as much. */
async function writeRuns(file: FileHandle, runs: readonly PageRun[]): Promise<void> {
  const failures: Error[] = [];
  const short: PageRun[] = [];
  await new Promise<void>((resolve) => {
    let left = runs.length;
    for (const run of runs) {
      write(file.fd, run.bytes, 0, run.bytes.length, run.firstPage * pageBytes, (error, written) => {
        if (error !== null) failures.push(error);
        else if (written < run.bytes.length) short.push(run);
        if (--left === 0) resolve();
      });
    }
  });
  if (failures[0] !== undefined) throw failures[0];
  for (const { firstPage, bytes } of short) await writeFully(file, bytes, firstPage * pageBytes);
}
