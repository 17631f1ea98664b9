/**
 * Merges disk layers into one. Every cluster comes from the topmost layer that has it; a cluster that a layer
 * zeroed stays zero and still hides the layers below. The layers are qcow2 images as QEMU writes them here:
 * version 3, clusters of 64 KiB, no compression, encryption or internal snapshots, and no backing path
 * inside.
 *
 * The result has a header, refcount table, refcount blocks, L1 table, L2 tables and data, each of which
 * starts at a cluster boundary.
 */
import { open, type FileHandle } from "node:fs/promises";
import { AppError } from "@forkd/contract";
import {
  decodeQcow2Header,
  encodeQcow2Header,
  qcow2ClusterBytes as clusterBytes,
  qcow2HeaderBytes,
  qcow2L1Entries,
  qcow2TableEntries as tableEntries,
  Scope,
} from "@forkd/base";
import { writeFully } from "./chunk-digests.ts";

const countsPerBlock = clusterBytes / 2;
const offsetMask = 0x00ff_ffff_ffff_fe00n;
const copiedFlag = 1n << 63n;
const compressedFlag = 1n << 62n;
const zeroFlag = 1n;

type Layer = { path: string; file: FileHandle; bytes: number; l1: BigUint64Array };
/** Where the content of a cluster is; undefined: it reads as zeros. */
type Source = { file: FileHandle; offset: number } | undefined;

/** Only reads `layers` (bottom to top). `outPath` must not exist; a failure may leave a file there. */
export async function mergeDisks(
  layers: readonly string[],
  outPath: string,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  await using scope = new Scope();
  const opened: Layer[] = [];
  for (const path of layers) opened.push(await openLayer(path, scope));
  const [bottom] = opened;
  if (bottom === undefined) throw new TypeError("Cannot merge disks: there are none");
  for (const { path, bytes } of opened) if (bytes !== bottom.bytes) throw bad(path, "it has another size");
  const clusters = await topmost(opened);
  const out = await open(outPath, "wx", 0o600);
  scope.defer(() => out.close());
  await write(out, bottom.bytes, clusters, options.signal);
}

async function openLayer(path: string, scope: Scope): Promise<Layer> {
  const file = await open(path, "r");
  scope.defer(() => file.close());
  const bytes = Buffer.alloc(qcow2HeaderBytes);
  await file.read(bytes, 0, bytes.length, 0);
  const header = decodeQcow2Header(bytes);
  if (header === undefined) throw bad(path, "it is not a qcow2 image as disk layers must be");
  const l1 = await readTable(file, header.l1Offset, header.l1Entries, path);
  return { path, file, bytes: header.virtualBytes, l1 };
}

/** Entries are big-endian on disk. */
async function readTable(
  file: FileHandle,
  offset: number,
  entries: number,
  path: string,
): Promise<BigUint64Array> {
  if (entries > tableEntries) throw bad(path, "its table is too long");
  const bytes = Buffer.alloc(entries * 8);
  const { bytesRead } = await file.read(bytes, 0, bytes.length, offset);
  if (bytesRead !== bytes.length) throw bad(path, "its tables are cut off");
  bytes.swap64();
  return new BigUint64Array(bytes.buffer, bytes.byteOffset, entries);
}

/** Guest cluster → where its content is, for clusters that at least one layer has. */
async function topmost(layers: readonly Layer[]): Promise<Map<number, Source>> {
  const found = new Map<number, Source>();
  for (const { file, l1, path } of layers.toReversed()) {
    for (const [high, entry] of l1.entries()) {
      const offset = entry & offsetMask;
      if (offset === 0n) continue;
      const l2 = await readTable(file, Number(offset), tableEntries, path);
      for (const [low, mapping] of l2.entries()) {
        if (mapping === 0n) continue;
        const cluster = high * tableEntries + low;
        if (found.has(cluster)) continue;
        if ((mapping & compressedFlag) !== 0n) throw bad(path, "it has compressed clusters");
        const isZero = (mapping & zeroFlag) !== 0n;
        found.set(cluster, isZero ? undefined : { file, offset: Number(mapping & offsetMask) });
      }
    }
  }
  return found;
}

async function write(
  out: FileHandle,
  bytes: number,
  clusters: ReadonlyMap<number, Source>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const l1Entries = qcow2L1Entries(bytes);
  const highs = [...new Set([...clusters.keys()].map((cluster) => Math.floor(cluster / tableEntries)))];
  const dataCount = [...clusters.values()].filter((source) => source !== undefined).length;
  // Header, refcount table and L1 table take one cluster each.
  const fixed = 3 + highs.length + dataCount;
  let blocks = 1;
  while (blocks * countsPerBlock < fixed + blocks) blocks++;
  const l1At = 2 + blocks;
  const l2At = new Map(highs.sort((a, b) => a - b).map((high, nth) => [high, l1At + 1 + nth]));
  const total = fixed + blocks;

  await out.truncate(total * clusterBytes);
  const header = encodeQcow2Header({ virtualBytes: bytes, l1Entries, l1Offset: l1At * clusterBytes });
  await writeFully(out, header, 0);

  const blockTable = Buffer.alloc(blocks * 8);
  for (let nth = 0; nth < blocks; nth++)
    blockTable.writeBigUInt64BE(BigInt((2 + nth) * clusterBytes), nth * 8);
  await writeFully(out, blockTable, clusterBytes);
  const counts = Buffer.alloc(total * 2);
  for (let nth = 0; nth < total; nth++) counts.writeUInt16BE(1, nth * 2);
  await writeFully(out, counts, 2 * clusterBytes);
  const l1 = Buffer.alloc(l1Entries * 8);
  for (const [high, at] of l2At) l1.writeBigUInt64BE(BigInt(at * clusterBytes) | copiedFlag, high * 8);
  await writeFully(out, l1, l1At * clusterBytes);

  let next = l1At + 1 + highs.length;
  const tables = new Map([...l2At.keys()].map((high) => [high, Buffer.alloc(clusterBytes)]));
  const buffer = Buffer.alloc(clusterBytes);
  for (const cluster of [...clusters.keys()].sort((a, b) => a - b)) {
    signal?.throwIfAborted();
    const source = clusters.get(cluster);
    let mapping = zeroFlag;
    if (source) {
      // The last cluster of a file may be cut short; the rest of it reads as zeros.
      const { bytesRead } = await source.file.read(buffer, 0, clusterBytes, source.offset);
      buffer.fill(0, bytesRead);
      await writeFully(out, buffer, next * clusterBytes);
      mapping = BigInt(next * clusterBytes) | copiedFlag;
      next++;
    }
    const table = tables.get(Math.floor(cluster / tableEntries));
    table?.writeBigUInt64BE(mapping, (cluster % tableEntries) * 8);
  }
  for (const [high, table] of tables) {
    await writeFully(out, table, (l2At.get(high) ?? 0) * clusterBytes);
  }
}

function bad(path: string, problem: string): AppError {
  return new AppError("snapshot_corrupt", `Cannot merge disk layer ${path}: ${problem}`, {
    details: { problem },
  });
}
