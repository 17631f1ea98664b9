/** Converts records of a watch (docs/spec/agent-protocol.md) to events of the contract. Pure. */
import type { WatchEvent } from "@forkd/contract";
import { fileBounds } from "../bounds.ts";
import { BadRecord, measureTexts, RecordParser, textsAfter } from "./records.ts";
import { decodeOneRecord, entryAt, maxRecordBytes, pathOf, pathPrefix } from "./stat-records.ts";

const layout = {
  fixedBytes: 1,
  /** path, path before a rename, stat record */
  textBytes: [fileBounds.pathBytes, fileBounds.pathBytes, maxRecordBytes],
};

const changes = {
  s: "started",
  c: "create",
  w: "write",
  d: "remove",
  m: "rename",
  a: "chmod",
  o: "overflow",
  y: "sync",
} as const;

interface WatchRecord {
  readonly change: (typeof changes)[keyof typeof changes];
  readonly path: string;
  readonly from: string;
  /** a stat record, or empty */
  readonly entry: Buffer;
}

export class WatchRecordParser extends RecordParser<WatchRecord> {
  constructor() {
    super({
      maxBytes: layout.textBytes.reduce((sum, bytes) => sum + 2 + bytes, layout.fixedBytes),
      measure: (bytes, at, end) => measureTexts(bytes, at, end, layout),
      decode: decodeRecord,
    });
  }
}

function isChange(letter: string): letter is keyof typeof changes {
  return Object.hasOwn(changes, letter);
}

function decodeRecord(record: Buffer): WatchRecord {
  const letter = String.fromCharCode(record.readUInt8(0));
  if (!isChange(letter)) throw new BadRecord(`change ${record.readUInt8(0)}`);
  const [path, from, entry] = textsAfter(record, layout.fixedBytes, layout.textBytes.length);
  return {
    change: changes[letter],
    path: String(path),
    from: String(from),
    // The bytes are a view of a buffer that the next record overwrites.
    entry: Buffer.from(entry ?? []),
  };
}

/** The first event. Only the guest knows the path of a directory that was named by its place in a home. */
export function startedEvent(requested: string, record: WatchRecord): WatchEvent & { type: "started" } {
  if (record.change !== "started") throw new BadRecord("change before the start");
  return { type: "started", path: pathOf(requested, { name: record.path }) };
}

/** Every later event, but `sync`; `directory` is absolute. */
export function changeEvent(directory: string, record: WatchRecord): WatchEvent {
  const { change, from } = record;
  const path = below(record.path);
  switch (change) {
    case "create":
    case "write":
    case "chmod": {
      const entry = record.entry.length > 0 ? { entry: entryOf(directory, path, record.entry) } : {};
      if (change !== "create") return { type: change, path, ...entry };
      return { type: change, path, ...(from !== "" && { from: below(from) }), ...entry };
    }
    case "remove":
    case "rename":
    case "overflow":
      return { type: change, path };
    default:
      throw new BadRecord(`${change} among the changes`);
  }
}

function entryOf(directory: string, path: string, bytes: Buffer) {
  const full = path === "." ? directory : pathPrefix(directory) + path;
  return entryAt(full, decodeOneRecord(bytes));
}

/** A path below the directory; "." is the directory itself. */
function below(path: string): string {
  if (path === "") return ".";
  for (const part of path.split("/")) {
    if (part === "" || part === "." || part === ".." || part.includes("\0")) throw new BadRecord("path");
    if (Buffer.byteLength(part) > fileBounds.nameBytes) throw new BadRecord("path");
  }
  return path;
}
