/** Converts stat records of the agent (docs/spec/agent-protocol.md) to file entries of the contract. Pure. */
import { posix } from "node:path";
import type { FileEntry } from "@forkd/contract";
import { fileBounds } from "../bounds.ts";
import { BadRecord, measureTexts, RecordParser, textsAfter, type RecordLength } from "./records.ts";

const fixedBytes = 34;
/** Longest texts after the fixed part: name, target, owner, group, resolved path. */
const textBytes = [
  fileBounds.pathBytes,
  fileBounds.pathBytes,
  fileBounds.ownerBytes,
  fileBounds.ownerBytes,
  fileBounds.pathBytes,
] as const;
export const maxRecordBytes = textBytes.reduce((sum, bytes) => sum + 2 + bytes, fixedBytes);

const typeOf: Readonly<Record<string, FileEntry["type"]>> = {
  f: "file",
  d: "directory",
  l: "symlink",
  p: "fifo",
  s: "socket",
  b: "block",
  c: "char",
};

/** One record. The guest chooses the name: a path below a directory, or the absolute path of one file. */
type StatRecord = Omit<FileEntry, "path">;

/** Reads stat records from pieces of a stream. */
export class StatRecordParser extends RecordParser<StatRecord> {
  constructor() {
    super({ maxBytes: maxRecordBytes, measure, decode: decodeRecord });
  }
}

/** The length of the record at `at`, as far as the bytes before `end` tell it. */
function measure(bytes: Buffer, at: number, end: number): RecordLength {
  return measureTexts(bytes, at, end, { fixedBytes, textBytes });
}

/** One whole record and nothing else. */
export function decodeOneRecord(bytes: Buffer): StatRecord {
  const { length, isWhole } = measure(bytes, 0, bytes.length);
  if (!isWhole || length !== bytes.length) throw new BadRecord("record of another length");
  return decodeRecord(bytes);
}

function modeText(bits: number): string {
  return (bits & 0o7777).toString(8).padStart(4, "0");
}

function fileType(letter: number): FileEntry["type"] {
  const type = typeOf[String.fromCharCode(letter)];
  if (type === undefined) throw new BadRecord(`file type ${letter}`);
  return type;
}

function decodeRecord(record: Buffer): StatRecord {
  const type = fileType(record.readUInt8(0));
  const endType = record.readUInt8(29);
  const texts = textsAfter(record, fixedBytes, textBytes.length).map(String);
  const [name = "", target = "", owner = "", group = "", resolved = ""] = texts;
  return {
    name,
    type,
    size: Number(record.readBigUInt64LE(5)),
    mode: modeText(record.readUInt32LE(1)),
    // Milliseconds, because a double of seconds since the epoch rounds finer fractions.
    mtime_unix: Number(record.readBigUInt64LE(13) / 1_000_000n) / 1000,
    uid: record.readUInt32LE(21),
    gid: record.readUInt32LE(25),
    ...(owner !== "" && { owner }),
    ...(group !== "" && { group }),
    ...(target !== "" && { target }),
    ...(endType !== 0 && {
      resolved: {
        path: absolutePath(resolved),
        type: fileType(endType),
        mode: modeText(record.readUInt32LE(30)),
      },
    }),
  };
}

/** What the paths of a directory's entries start with. */
export function pathPrefix(directory: string): string {
  return posix.join(directory, "x").slice(0, -1);
}

/** An entry at most `depth` levels below a directory. Refuses names that a directory cannot contain. */
export function entryIn(prefix: string, record: StatRecord, depth = 1): FileEntry {
  const parts = record.name.split("/");
  if (parts.length > depth) throw new BadRecord("file name");
  for (const name of parts) {
    if (name === "" || name === "." || name === ".." || name.includes("\0")) throw new BadRecord("file name");
    if (Buffer.byteLength(name) > fileBounds.nameBytes) throw new BadRecord("file name");
  }
  return { ...record, name: parts.at(-1) ?? "", path: prefix + record.name };
}

/** The entry of one file. Only the guest knows the path of one that was named by its place in a home. */
export function entryAt(requested: string, record: StatRecord): FileEntry {
  const path = pathOf(requested, record);
  return { ...record, name: posix.basename(path) || "/", path };
}

/** The absolute path of the requested file. */
export function pathOf(requested: string, { name }: Pick<StatRecord, "name">): string {
  return requested.startsWith("/") ? requested : absolutePath(name);
}

function absolutePath(path: string): string {
  if (!path.startsWith("/") || path.includes("\0")) throw new BadRecord("path that is not absolute");
  return path;
}
