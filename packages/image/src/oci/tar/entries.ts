/** The entries of a tar archive, with the long names and attributes of their extended headers. */
import {
  blockBytes,
  paddingOf,
  parseHeader,
  parsePax,
  readable,
  TarFault,
  type TarHeader,
} from "./header.ts";

export type TarEntry = TarHeader & {
  xattrs: ReadonlyMap<string, string>;
  /** of its content in the archive */
  offset: number;
};

/** Where entries are read from. */
export type EntryReader = {
  readonly position: number;
  read: (length: number) => Promise<Buffer | undefined>;
  skip: (length: number) => Promise<void>;
  /** reads to the end */
  drain: () => Promise<void>;
};

const maxExtendedBytes = 1 << 20;
const xattrPrefix = "SCHILY.xattr.";
const noAttributes: ReadonlyMap<string, string> = new Map();

/** Entries that have no content, whatever their size says. */
const emptyTypes = new Set(["1", "2", "3", "4", "5", "6"]);

/**
 * Each entry as it comes. The consumer may read its content, `size` bytes, from the reader before it asks for the
 * next; what it does not read is skipped. Reads the stream to its end.
 */
export async function* readEntries(reader: EntryReader): AsyncGenerator<TarEntry> {
  let pax: ReadonlyMap<string, string> | undefined;
  let longName: string | undefined;
  let longLink: string | undefined;
  for (;;) {
    const block = await reader.read(blockBytes);
    // Some writers leave out the two blocks of zeros.
    const header = block && parseHeader(block);
    if (header === undefined) break;
    if (header.type === "x") pax = parsePax(await extended(reader, header));
    // Container tools ignore attributes of the whole archive, so they mean nothing in a layer.
    else if (header.type === "g") await extended(reader, header);
    else if (header.type === "L") longName = text(await extended(reader, header));
    else if (header.type === "K") longLink = text(await extended(reader, header));
    else {
      const entry = describe(header, { pax, longName, longLink, offset: reader.position });
      pax = longName = longLink = undefined;
      const end = entry.offset + entry.size + paddingOf(entry.size);
      yield entry;
      await reader.skip(end - reader.position);
    }
  }
  if (pax !== undefined || longName !== undefined || longLink !== undefined)
    throw new TarFault("it ends after an extended header");
  await reader.drain();
}

async function extended(reader: EntryReader, { size }: TarHeader): Promise<Buffer> {
  if (size > maxExtendedBytes)
    throw new TarFault(`an extended header is larger than ${maxExtendedBytes} bytes`);
  const bytes = await reader.read(size + paddingOf(size));
  if (bytes === undefined) throw new TarFault("it ends too early");
  // A copy, so that the archive's large pieces are not kept.
  return Buffer.from(bytes.subarray(0, size));
}

function text(bytes: Buffer): string {
  const value = bytes.toString("latin1");
  const end = value.indexOf("\0");
  return end < 0 ? value : value.slice(0, end);
}

function describe(
  header: TarHeader,
  more: {
    pax: ReadonlyMap<string, string> | undefined;
    longName: string | undefined;
    longLink: string | undefined;
    offset: number;
  },
): TarEntry {
  const { pax, longName, longLink, offset } = more;
  const type = header.type === "\0" || header.type === "7" ? "0" : header.type;
  const name = pax?.get("path") ?? longName ?? header.name;
  const size = emptyTypes.has(type) ? 0 : (numberOf(pax, "size") ?? header.size);
  const xattrs = new Map<string, string>();
  for (const [key, value] of pax ?? []) {
    if (key.startsWith(xattrPrefix)) xattrs.set(key.slice(xattrPrefix.length), value);
    if (key.startsWith("GNU.sparse.")) throw new TarFault(`"${readable(name)}" is a sparse file`);
  }
  return {
    ...header,
    name,
    link: pax?.get("linkpath") ?? longLink ?? header.link,
    // Old archives mark a directory by its name only.
    type: type === "0" && name.endsWith("/") ? "5" : type,
    size,
    uid: numberOf(pax, "uid") ?? header.uid,
    gid: numberOf(pax, "gid") ?? header.gid,
    mtime: timeOf(pax) ?? header.mtime,
    xattrs: xattrs.size === 0 ? noAttributes : xattrs,
    offset,
  };
}

function numberOf(pax: ReadonlyMap<string, string> | undefined, key: string): number | undefined {
  const value = pax?.get(key);
  if (value === undefined) return undefined;
  const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN;
  if (!Number.isSafeInteger(number))
    throw new TarFault(`an extended header has a ${key} that is not a number`);
  return number;
}

function timeOf(pax: ReadonlyMap<string, string> | undefined): string | undefined {
  const value = pax?.get("mtime");
  if (value === undefined) return undefined;
  return /^\d{1,12}(\.\d{1,20})?$/.test(value) ? value : "0";
}
