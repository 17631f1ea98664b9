/**
 * Reads and writes tar archives in the ustar form (pure). Entries are sorted and have neither owners nor times,
 * so equal content gives equal bytes.
 */

export type TarEntry =
  | { path: string; type: "directory" }
  | { path: string; type: "file"; mode: number; content: Uint8Array }
  | { path: string; type: "link"; target: string };

const block = 512;
const typeFlags = { file: "0", link: "2", directory: "5" } as const;
const zeros = (length: number) => Buffer.alloc(length);

/** Throws RangeError for a path or a target that does not fit. */
export function encodeTar(entries: readonly TarEntry[]): Buffer {
  const sorted = [...entries].sort((a, b) => (a.path < b.path ? -1 : 1));
  const parts = sorted.flatMap((entry) => {
    const content = entry.type === "file" ? entry.content : zeros(0);
    return [header(entry, content.length), content, zeros(padding(content.length))];
  });
  return Buffer.concat([...parts, zeros(2 * block)]);
}

function padding(length: number): number {
  return (block - (length % block)) % block;
}

function header(entry: TarEntry, size: number): Buffer {
  const bytes = zeros(block);
  const text = (at: number, length: number, value: string) => {
    if (Buffer.byteLength(value) > length) throw new RangeError(`"${value}" is too long for an archive`);
    bytes.write(value, at, "utf8");
  };
  const octal = (at: number, length: number, value: number) =>
    text(at, length, `${value.toString(8).padStart(length - 1, "0")}\0`);
  const [prefix, name] = splitPath(entry.path);
  text(0, 100, name);
  octal(100, 8, entry.type === "file" ? entry.mode : entry.type === "link" ? 0o777 : 0o755);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, size);
  octal(136, 12, 0);
  text(148, 8, " ".repeat(8));
  text(156, 1, typeFlags[entry.type]);
  if (entry.type === "link") text(157, 100, entry.target);
  text(257, 8, "ustar\u000000");
  text(345, 155, prefix);
  text(148, 8, `${checksum(bytes).toString(8).padStart(6, "0")}\0 `);
  return bytes;
}

/** A name has 100 bytes; what is before one of its slashes may go into the prefix. */
function splitPath(path: string): [prefix: string, name: string] {
  if (Buffer.byteLength(path) <= 100) return ["", path];
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    if (Buffer.byteLength(path.slice(at + 1)) <= 100) return [path.slice(0, at), path.slice(at + 1)];
  }
  return ["", path];
}

function checksum(bytes: Buffer): number {
  let sum = 0;
  for (const byte of bytes) sum += byte;
  return sum;
}

/** The bytes are not an archive that encodeTar() makes. */
export class BadTar extends Error {}

/** Reads what encodeTar() writes and nothing else. Throws BadTar. The content is not copied. */
export function decodeTar(bytes: Buffer, { maxEntries }: { maxEntries: number }): TarEntry[] {
  const entries: TarEntry[] = [];
  for (let at = 0; ;) {
    const head = bytes.subarray(at, at + block);
    if (head.length < block) throw new BadTar("it ends in the middle");
    if (head.every((byte) => byte === 0)) break;
    if (entries.length >= maxEntries) throw new BadTar(`it has more than ${maxEntries} entries`);
    const { entry, size } = readHeader(head);
    at += block;
    if (entry.type === "file") {
      const content = bytes.subarray(at, at + size);
      if (content.length < size) throw new BadTar(`"${entry.path}" ends in the middle`);
      entry.content = content;
    } else if (size !== 0) throw new BadTar(`"${entry.path}" is not a file but has content`);
    entries.push(entry);
    at += size + padding(size);
  }
  return entries;
}

function readHeader(head: Buffer): { entry: TarEntry; size: number } {
  const text = (at: number, length: number): string => {
    const field = head.subarray(at, at + length);
    const end = field.indexOf(0);
    return field.subarray(0, end < 0 ? length : end).toString("utf8");
  };
  const octal = (at: number, length: number): number => {
    const digits = text(at, length).trim();
    if (!/^[0-7]{1,11}$/.test(digits)) throw new BadTar("a number in it is not octal");
    return Number.parseInt(digits, 8);
  };
  if (text(257, 6) !== "ustar") throw new BadTar("it is not a tar archive in the ustar form");
  const expected = octal(148, 8);
  const blank = Buffer.from(head).fill(" ", 148, 156);
  if (checksum(blank) !== expected) throw new BadTar("a checksum in it is wrong");
  const prefix = text(345, 155);
  const path = prefix === "" ? text(0, 100) : `${prefix}/${text(0, 100)}`;
  const size = octal(124, 12);
  const flag = text(156, 1);
  if (flag === typeFlags.file)
    return { entry: { path, type: "file", mode: octal(100, 8) & 0o777, content: zeros(0) }, size };
  if (flag === typeFlags.directory) return { entry: { path, type: "directory" }, size };
  if (flag === typeFlags.link) return { entry: { path, type: "link", target: text(157, 100) }, size };
  throw new BadTar(`"${path}" is neither a file, a directory nor a symbolic link`);
}
