/**
 * Headers of tar archives: ustar, GNU and pax. Pure.
 *
 * Names, links and values are latin1 strings, one character per byte: a file name is bytes, not always UTF-8.
 */

export const blockBytes = 512;

export type TarHeader = {
  name: string;
  link: string;
  /** type flag, one character */
  type: string;
  size: number;
  mode: number;
  uid: number;
  gid: number;
  /** seconds, as text of a decimal number */
  mtime: string;
};

/** What is wrong with an archive; the reader adds which archive it is. */
export class TarFault extends Error {
  override readonly name = "TarFault";
}

/** A name of bytes (latin1) for messages. */
export function readable(name: string): string {
  return Buffer.from(name, "latin1").toString("utf8").slice(0, 500);
}

const damaged = "a header is damaged, or it is not a tar archive";
const maxNumber = Number.MAX_SAFE_INTEGER;

/** The header in a block of 512 bytes, or undefined for a block of zeros, which ends an archive. */
export function parseHeader(block: Buffer): TarHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  requireChecksum(block);
  const text = (at: number, length: number): string => {
    const part = block.toString("latin1", at, at + length);
    const end = part.indexOf("\0");
    return end < 0 ? part : part.slice(0, end);
  };
  const isPosix = block.toString("latin1", 257, 263) === "ustar\0";
  const prefix = isPosix ? text(345, 155) : "";
  const name = text(0, 100);
  return {
    name: prefix === "" ? name : `${prefix}/${name}`,
    mode: parseNumber(block, 100, 8) & 0o7777,
    uid: parseNumber(block, 108, 8),
    gid: parseNumber(block, 116, 8),
    size: parseNumber(block, 124, 12),
    mtime: String(parseNumber(block, 136, 12)),
    type: block.toString("latin1", 156, 157),
    link: text(157, 100),
  };
}

/** The sum of all bytes, with spaces in place of the checksum itself. */
function requireChecksum(block: Buffer): void {
  let sum = 0;
  for (let index = 0; index < blockBytes; index++)
    sum += index >= 148 && index < 156 ? 32 : (block[index] ?? 0);
  if (sum !== parseNumber(block, 148, 8)) throw new TarFault(damaged);
}

/** Octal text, or a binary number after a byte 0x80 or 0xff. */
function parseNumber(block: Buffer, at: number, length: number): number {
  const first = block[at] ?? 0;
  if (first & 0x80) {
    // Negative numbers are times before 1970.
    if (first & 0x40) return 0;
    let value = first & 0x3f;
    for (let index = at + 1; index < at + length; index++) value = value * 256 + (block[index] ?? 0);
    return bounded(value);
  }
  const digits = block
    .toString("latin1", at, at + length)
    .replace(/[\0 ]+$/, "")
    .trim();
  if (digits === "") return 0;
  if (!/^[0-7]+$/.test(digits)) throw new TarFault(damaged);
  return bounded(Number.parseInt(digits, 8));
}

function bounded(value: number): number {
  if (value > maxNumber) throw new TarFault("a header has a number that is too large");
  return value;
}

/** The records `LENGTH NAME=VALUE\n` of a pax header. */
export function parsePax(bytes: Buffer): Map<string, string> {
  const records = new Map<string, string>();
  let at = 0;
  while (at < bytes.length) {
    const space = bytes.indexOf(0x20, at);
    const digits = space < 0 || space - at > 10 ? "" : bytes.toString("latin1", at, space);
    const length = /^[1-9]\d*$/.test(digits) ? Number(digits) : 0;
    const end = at + length;
    const equals = bytes.indexOf(0x3d, space);
    if (length === 0 || end > bytes.length || equals < 0 || equals >= end || bytes[end - 1] !== 0x0a)
      throw new TarFault("an extended header is damaged");
    records.set(bytes.toString("latin1", space + 1, equals), bytes.toString("latin1", equals + 1, end - 1));
    at = end;
  }
  return records;
}

/** The blocks of an entry: a pax header if it is needed, and its own header. */
export function encodeHeader(
  header: Omit<TarHeader, "type"> & { type: "0" | "1" | "2" | "5" | "6" },
  xattrs: ReadonlyMap<string, string>,
): Buffer {
  const records = paxRecords(header, xattrs);
  const plain = {
    ...header,
    name: fits(header.name, 100) ? header.name : "name",
    link: fits(header.link, 100) ? header.link : "",
    size: header.size < 8 ** 11 ? header.size : 0,
    uid: header.uid < 8 ** 7 ? header.uid : 0,
    gid: header.gid < 8 ** 7 ? header.gid : 0,
    mtime: String(plainTime(header.mtime)),
  };
  if (records.length === 0) return block(plain);
  const padding = Buffer.alloc(paddingOf(records.length));
  const own = {
    name: "pax",
    link: "",
    type: "x",
    size: records.length,
    mode: 0o644,
    uid: 0,
    gid: 0,
    mtime: "0",
  };
  return Buffer.concat([block(own), records, padding, block(plain)]);
}

/** Zeros after `size` bytes up to a whole block. */
export function paddingOf(size: number): number {
  return (blockBytes - (size % blockBytes)) % blockBytes;
}

function fits(text: string, length: number): boolean {
  return text.length <= length && /^[\x20-\x7e]*$/.test(text);
}

/** Whole seconds that fit into the header. */
function plainTime(mtime: string): number {
  const seconds = Math.floor(Number(mtime));
  return seconds >= 0 && seconds < 8 ** 11 ? seconds : 0;
}

function paxRecords(header: Omit<TarHeader, "type">, xattrs: ReadonlyMap<string, string>): Buffer {
  const records: [string, string][] = [];
  if (!fits(header.name, 100)) records.push(["path", header.name]);
  if (!fits(header.link, 100)) records.push(["linkpath", header.link]);
  if (header.size >= 8 ** 11) records.push(["size", String(header.size)]);
  if (header.uid >= 8 ** 7) records.push(["uid", String(header.uid)]);
  if (header.gid >= 8 ** 7) records.push(["gid", String(header.gid)]);
  if (String(plainTime(header.mtime)) !== header.mtime) records.push(["mtime", header.mtime]);
  for (const [name, value] of xattrs) records.push([`SCHILY.xattr.${name}`, value]);
  return Buffer.from(records.map(([name, value]) => paxRecord(name, value)).join(""), "latin1");
}

function paxRecord(name: string, value: string): string {
  const rest = ` ${name}=${value}\n`;
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return `${length}${rest}`;
}

function block(header: TarHeader): Buffer {
  const bytes = Buffer.alloc(blockBytes);
  const octal = (value: number, at: number, length: number): void => {
    bytes.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at, "latin1");
  };
  bytes.write(header.name, 0, 100, "latin1");
  octal(header.mode, 100, 8);
  octal(header.uid, 108, 8);
  octal(header.gid, 116, 8);
  octal(header.size, 124, 12);
  octal(Number(header.mtime), 136, 12);
  bytes.write("        ", 148, "latin1");
  bytes.write(header.type, 156, "latin1");
  bytes.write(header.link, 157, 100, "latin1");
  bytes.write("ustar\x0000", 257, "latin1");
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}
