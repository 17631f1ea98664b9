/** The few parts of tar that an archive uses: regular files with short names, all other facts fixed. */
import { badArchive } from "../format/bad-archive.ts";

export const blockBytes = 512;
const octalLimit = 8 ** 11;

/** A header that depends on name and length only. */
export function encodeHeader(name: string, size: number): Buffer {
  const header = Buffer.alloc(blockBytes);
  header.write(name, 0, 100, "latin1");
  header.write("0000644\0", 100, "latin1"); // mode
  header.write("0000000\0", 108, "latin1"); // owner
  header.write("0000000\0", 116, "latin1"); // group
  writeSize(header, size);
  header.write("00000000000\0", 136, "latin1"); // time of modification
  header.write("        ", 148, "latin1"); // checksum
  header.write("0", 156, "latin1"); // regular file
  header.write("ustar\0" + "00", 257, "latin1");
  header.write(`${checksumOf(header).toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return header;
}

/** Lengths of 8 GiB and more are binary, with the highest bit set. */
function writeSize(header: Buffer, size: number): void {
  if (size < octalLimit) {
    header.write(`${size.toString(8).padStart(11, "0")}\0`, 124, "latin1");
    return;
  }
  header.writeUInt8(0x80, 124);
  header.writeBigUInt64BE(BigInt(size), 128);
}

/** Zeros after an entry of that length. */
export function paddingOf(size: number): number {
  return (blockBytes - (size % blockBytes)) % blockBytes;
}

/** The end of an archive. */
export const trailer = Buffer.alloc(2 * blockBytes);

export type Entry = { name: string; size: number; type: "file" | "directory" | "pax" };

/** undefined for a block of zeros, which ends the archive. */
export function decodeHeader(header: Buffer): Entry | undefined {
  if (header.every((byte) => byte === 0)) return undefined;
  const stated = parseInt(field(header, 148, 8).trim(), 8);
  if (stated !== checksumOf(header)) throw badArchive("it is not a tar file, or is damaged");
  const prefix = field(header, 257, 5) === "ustar" ? field(header, 345, 155) : "";
  const name = `${prefix === "" ? "" : `${prefix}/`}${field(header, 0, 100)}`;
  const type = types[String.fromCharCode(header.readUInt8(156))];
  if (type === undefined) throw badArchive(`entry ${JSON.stringify(name)} is not a regular file`);
  return { name: name.replace(/^(\.\/)+/, ""), size: readSize(header, name), type };
}

const types: Readonly<Record<string, Entry["type"]>> = {
  "0": "file",
  "\0": "file",
  "5": "directory",
  x: "pax",
};

function readSize(header: Buffer, name: string): number {
  const isBinary = header.readUInt8(124) === 0x80;
  const size = isBinary ? Number(header.readBigUInt64BE(128)) : parseInt(field(header, 124, 12).trim(), 8);
  if (!Number.isSafeInteger(size) || size < 0)
    throw badArchive(`entry ${JSON.stringify(name)} has no length`);
  return size;
}

/** The length in a pax header, which replaces the one of the next entry. Names and links in it are refused. */
export function paxSize(records: Buffer): number | undefined {
  let size: number | undefined;
  for (let at = 0; at < records.length;) {
    const space = records.indexOf(0x20, at);
    const length = space < 0 ? NaN : Number(records.toString("latin1", at, space));
    if (!Number.isInteger(length) || length < 5 || at + length > records.length)
      throw badArchive("a pax header cannot be read");
    const [key, value = ""] = records.toString("utf8", space + 1, at + length - 1).split("=", 2);
    if (key === "path" || key === "linkpath") throw badArchive("an entry has a name in a pax header");
    if (key === "size") size = Number(value);
    at += length;
  }
  if (size !== undefined && (!Number.isSafeInteger(size) || size < 0))
    throw badArchive("a pax header has a length that is not one");
  return size;
}

function field(header: Buffer, at: number, length: number): string {
  const text = header.toString("latin1", at, at + length);
  const end = text.indexOf("\0");
  return end < 0 ? text : text.slice(0, end);
}

/** Sum of all bytes, with the checksum itself as blanks. */
function checksumOf(header: Buffer): number {
  let sum = 0;
  for (const [index, byte] of header.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte;
  return sum;
}
