/**
 * The header of the qcow2 images that are written here: version 3, clusters of 64 KiB, 16-bit refcounts, no
 * backing path, nothing compressed, encrypted or internal.
 */

const qcow2ClusterBits = 16;
export const qcow2ClusterBytes = 1 << qcow2ClusterBits;
/** An L1 or L2 table of one cluster has this many entries. */
export const qcow2TableEntries = qcow2ClusterBytes / 8;
/** Includes the empty list of extensions that follows. */
export const qcow2HeaderBytes = 112;

const magic = 0x514649fb; // "QFI\xfb"
const refcountOrder = 4;

type Qcow2Header = { virtualBytes: number; l1Entries: number; l1Offset: number };

/** How many L1 entries a disk of this size needs. */
export function qcow2L1Entries(virtualBytes: number): number {
  return Math.ceil(virtualBytes / (qcow2ClusterBytes * qcow2TableEntries));
}

/** The refcount table takes the second cluster. */
export function encodeQcow2Header({ virtualBytes, l1Entries, l1Offset }: Qcow2Header): Buffer {
  const header = Buffer.alloc(qcow2HeaderBytes);
  header.writeUInt32BE(magic, 0);
  header.writeUInt32BE(3, 4); // version
  header.writeUInt32BE(qcow2ClusterBits, 20);
  header.writeBigUInt64BE(BigInt(virtualBytes), 24);
  header.writeUInt32BE(l1Entries, 36);
  header.writeBigUInt64BE(BigInt(l1Offset), 40);
  header.writeBigUInt64BE(BigInt(qcow2ClusterBytes), 48); // refcount table
  header.writeUInt32BE(1, 56); // clusters of the refcount table
  header.writeUInt32BE(refcountOrder, 96);
  header.writeUInt32BE(104, 100); // header length; eight zero bytes after it end the extensions
  return header;
}

/** undefined if it is not an image of this form. */
export function decodeQcow2Header(header: Buffer): Qcow2Header | undefined {
  const hasThisForm =
    header.length >= qcow2HeaderBytes &&
    header.readUInt32BE(0) === magic &&
    header.readUInt32BE(4) === 3 &&
    header.readUInt32BE(16) === 0 && // length of the backing path
    header.readUInt32BE(20) === qcow2ClusterBits &&
    header.readUInt32BE(32) === 0 && // encryption
    header.readUInt32BE(60) === 0 && // internal snapshots
    header.readBigUInt64BE(72) === 0n; // incompatible features
  if (!hasThisForm) return undefined;
  return {
    virtualBytes: Number(header.readBigUInt64BE(24)),
    l1Entries: header.readUInt32BE(36),
    l1Offset: Number(header.readBigUInt64BE(40)),
  };
}
