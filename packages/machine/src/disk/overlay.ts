/**
 * Writes an empty qcow2 overlay without qemu-img.
 *
 * Four clusters of 64 KiB: header, refcount table, one refcount block (counts of these clusters), L1 table
 * (all zero: all data comes from the backing node). The VMM's command line names the backing file, never the
 * header, so an overlay contains no path and can be moved.
 */
import { open } from "node:fs/promises";
import {
  encodeQcow2Header,
  qcow2ClusterBytes as clusterSize,
  qcow2L1Entries,
  qcow2TableEntries,
} from "@forkd/base";

/** Number of bytes that one L1 cluster maps. */
const maxVirtualSize = qcow2TableEntries * qcow2TableEntries * clusterSize;

/** The four clusters as pieces: [offset, bytes]. */
export function emptyOverlay(virtualSize: number): { length: number; pieces: [number, Buffer][] } {
  if (virtualSize <= 0 || virtualSize % 512 !== 0 || virtualSize > maxVirtualSize) {
    throw new RangeError(`Cannot make an overlay of ${virtualSize} bytes`);
  }
  const header = encodeQcow2Header({
    virtualBytes: virtualSize,
    l1Entries: qcow2L1Entries(virtualSize),
    l1Offset: 3 * clusterSize,
  });
  const refcountTable = Buffer.alloc(8);
  refcountTable.writeBigUInt64BE(BigInt(2 * clusterSize));
  const refcountBlock = Buffer.alloc(8);
  for (let cluster = 0; cluster < 4; cluster++) refcountBlock.writeUInt16BE(1, cluster * 2);
  return {
    length: 4 * clusterSize,
    pieces: [
      [0, header],
      [clusterSize, refcountTable],
      [2 * clusterSize, refcountBlock],
    ],
  };
}

/** Creates the file; fails if it exists. */
export async function createOverlay(path: string, virtualSize: number): Promise<void> {
  const { length, pieces } = emptyOverlay(virtualSize);
  const file = await open(path, "wx", 0o600);
  try {
    await file.truncate(length);
    for (const [offset, bytes] of pieces) await file.write(bytes, 0, bytes.length, offset);
  } finally {
    await file.close();
  }
}
