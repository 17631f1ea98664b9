/** Converts stat records of the agent (docs/spec/agent-protocol.md) to file entries of the contract. Pure. */
import { posix } from "node:path";
import type { FileEntry } from "@forkd/contract";
import { fileBounds } from "../bounds.ts";

const fixedBytes = 29;
const nameAt = fixedBytes + 2;
const maxRecordBytes = nameAt + 2 + 2 * fileBounds.pathBytes;

const typeOf: Readonly<Record<string, FileEntry["type"]>> = {
  f: "file",
  d: "directory",
  l: "symlink",
  p: "fifo",
  s: "socket",
  b: "block",
  c: "char",
};

/** The guest sent an invalid record. The caller adds which operation failed. */
export class BadRecord extends Error {
  override readonly name = "BadRecord";
}

/** One record without its path. */
type StatRecord = Omit<FileEntry, "path">;

/**
 * Reads records from pieces of a stream. A record inside one piece is read where it is. A record that spans
 * pieces is copied once into one buffer, so the work is linear for pieces of any size.
 */
export class StatRecordParser {
  readonly #cut = Buffer.alloc(maxRecordBytes);
  #fill = 0;

  *push(piece: Buffer): Generator<StatRecord> {
    for (let at = 0; at < piece.length;) {
      if (this.#fill === 0) {
        const { length, isWhole } = measure(piece, at, piece.length);
        if (isWhole) {
          yield decodeRecord(piece.subarray(at, at + length));
          at += length;
          continue;
        }
      }
      const missing = measure(this.#cut, 0, this.#fill).length - this.#fill;
      const copied = piece.copy(this.#cut, this.#fill, at, at + missing);
      this.#fill += copied;
      at += copied;
      if (!measure(this.#cut, 0, this.#fill).isWhole) continue;
      yield decodeRecord(this.#cut.subarray(0, this.#fill));
      this.#fill = 0;
    }
  }

  /** Throws if the last record is incomplete. */
  end(): void {
    if (this.#fill > 0) throw new BadRecord("the last record is cut");
  }
}

/** The length of the record at `at`, as far as the bytes before `end` tell it. */
function measure(bytes: Buffer, at: number, end: number): { length: number; isWhole: boolean } {
  const here = end - at;
  let length = nameAt;
  if (here < length) return { length, isWhole: false };
  length += pathLength(bytes.readUInt16LE(at + fixedBytes)) + 2;
  if (here < length) return { length, isWhole: false };
  length += pathLength(bytes.readUInt16LE(at + length - 2));
  return { length, isWhole: here >= length };
}

function pathLength(length: number): number {
  if (length > fileBounds.pathBytes) throw new BadRecord(`name or target of ${length} bytes`);
  return length;
}

function decodeRecord(record: Buffer): StatRecord {
  const type = typeOf[String.fromCharCode(record.readUInt8(0))];
  if (type === undefined) throw new BadRecord(`file type ${record.readUInt8(0)}`);
  const size = record.readBigUInt64LE(5);
  const nameEnd = nameAt + record.readUInt16LE(fixedBytes);
  const target = record.toString("utf8", nameEnd + 2);
  return {
    name: record.toString("utf8", nameAt, nameEnd),
    type,
    size: Number(size),
    mode: (record.readUInt32LE(1) & 0o7777).toString(8).padStart(4, "0"),
    // Milliseconds, because a double of seconds since the epoch rounds finer fractions.
    mtime_unix: Number(record.readBigUInt64LE(13) / 1_000_000n) / 1000,
    uid: record.readUInt32LE(21),
    gid: record.readUInt32LE(25),
    ...(target !== "" && { target }),
  };
}

/** What the paths of a directory's entries start with. */
export function pathPrefix(directory: string): string {
  return posix.join(directory, "x").slice(0, -1);
}

/** An entry of a directory. Refuses names that a directory cannot contain. */
export function entryIn(prefix: string, record: StatRecord): FileEntry {
  const { name } = record;
  if (name === "" || name === "." || name === ".." || /[/\0]/.test(name)) throw new BadRecord("file name");
  if (Buffer.byteLength(name) > fileBounds.nameBytes) throw new BadRecord("file name");
  return { ...record, path: prefix + name };
}

export function entryAt(path: string, record: StatRecord): FileEntry {
  return { ...record, name: posix.basename(path) || "/", path };
}
