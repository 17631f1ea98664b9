/** Converts stat records of the agent (docs/spec/agent-protocol.md) to file entries of the contract. Pure. */
import { posix } from "node:path";
import type { FileEntry } from "@forkd/contract";

const fixedBytes = 29;

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

/** Reads records from pieces of a stream and keeps an incomplete record until the next piece. */
export class StatRecordParser {
  #rest: Buffer = Buffer.alloc(0);

  *push(piece: Buffer): Generator<StatRecord> {
    const bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, piece]) : piece;
    let at = 0;
    for (let end = recordEnd(bytes, at); end !== undefined; end = recordEnd(bytes, at)) {
      yield decodeRecord(bytes.subarray(at, end));
      at = end;
    }
    // A record has at most 128 KiB, so the copy is bounded.
    this.#rest = Buffer.from(bytes.subarray(at));
  }

  /** Throws if the last record is incomplete. */
  end(): void {
    if (this.#rest.length > 0) throw new BadRecord("the last record is cut");
  }
}

function recordEnd(bytes: Buffer, at: number): number | undefined {
  if (bytes.length < at + fixedBytes + 2) return undefined;
  const targetAt = at + fixedBytes + 2 + bytes.readUInt16LE(at + fixedBytes);
  if (bytes.length < targetAt + 2) return undefined;
  const end = targetAt + 2 + bytes.readUInt16LE(targetAt);
  return bytes.length < end ? undefined : end;
}

function decodeRecord(record: Buffer): StatRecord {
  const type = typeOf[String.fromCharCode(record.readUInt8(0))];
  if (type === undefined) throw new BadRecord(`file type ${record.readUInt8(0)}`);
  const size = record.readBigUInt64LE(5);
  const nameEnd = fixedBytes + 2 + record.readUInt16LE(fixedBytes);
  const target = record.toString("utf8", nameEnd + 2);
  return {
    name: record.toString("utf8", fixedBytes + 2, nameEnd),
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

/** An entry of a directory. Refuses names that a directory cannot contain. */
export function entryIn(directory: string, record: StatRecord): FileEntry {
  const { name } = record;
  if (name === "" || name === "." || name === ".." || /[/\0]/.test(name)) throw new BadRecord("file name");
  return { ...record, path: posix.join(directory, name) };
}

export function entryAt(path: string, record: StatRecord): FileEntry {
  return { ...record, name: posix.basename(path) || "/", path };
}
