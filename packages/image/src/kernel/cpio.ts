/**
 * Writes the "newc" cpio format, which the kernel accepts as an initramfs (pure).
 *
 *     6 bytes  magic "070701"
 *     13 × 8   hexadecimal: ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor
 *              namesize check
 *     name, NUL, padding to 4 bytes; content, padding to 4 bytes
 *
 * The archive ends with an entry named `TRAILER!!!`. Entries are sorted and have no times, so equal content
 * gives equal bytes.
 */

export type CpioEntry =
  | { path: string; type: "directory"; mode: number }
  | { path: string; type: "file"; mode: number; content: Uint8Array }
  | { path: string; type: "character"; mode: number; major: number; minor: number };

const typeBits = { directory: 0o040000, file: 0o100000, character: 0o020000 } as const;
const maxContentBytes = 0xffff_ffff;

/** Paths are relative, without `./`; the entries must include the directories of every path. */
export function encodeCpio(entries: readonly CpioEntry[]): Uint8Array {
  const sorted = [...entries].sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
  const parts: Uint8Array[] = [];
  sorted.forEach((entry, index) => {
    if (entry.path === "" || entry.path.startsWith("/"))
      throw new RangeError(`Cannot pack "${entry.path}": the path is not relative`);
    if (index > 0 && sorted[index - 1]?.path === entry.path)
      throw new RangeError(`Cannot pack "${entry.path}" twice`);
    parts.push(...encodeEntry(entry, index + 1));
  });
  parts.push(
    ...encodeRecord({
      name: "TRAILER!!!",
      ino: 0,
      mode: 0,
      links: 1,
      rdev: [0, 0],
      content: new Uint8Array(),
    }),
  );
  return Buffer.concat(parts);
}

function encodeEntry(entry: CpioEntry, ino: number): Uint8Array[] {
  const content = entry.type === "file" ? entry.content : new Uint8Array();
  if (content.length > maxContentBytes) throw new RangeError(`Cannot pack "${entry.path}": over 4 GiB`);
  return encodeRecord({
    name: entry.path,
    ino,
    mode: typeBits[entry.type] | entry.mode,
    links: entry.type === "directory" ? 2 : 1,
    rdev: entry.type === "character" ? [entry.major, entry.minor] : [0, 0],
    content,
  });
}

function encodeRecord(record: {
  name: string;
  ino: number;
  mode: number;
  links: number;
  rdev: [number, number];
  content: Uint8Array;
}): Uint8Array[] {
  const { ino, mode, links, rdev, content } = record;
  const name = Buffer.from(`${record.name}\0`);
  const numbers = [ino, mode, 0, 0, links, 0, content.length, 0, 0, ...rdev, name.length, 0];
  const header = Buffer.from(`070701${numbers.map((n) => n.toString(16).padStart(8, "0")).join("")}`);
  return [header, name, padding(header.length + name.length), content, padding(content.length)];
}

function padding(length: number): Uint8Array {
  return new Uint8Array((4 - (length % 4)) % 4);
}
