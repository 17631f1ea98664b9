/** File operations in the guest. The agent runs each as a process with the permissions of the given user. */
import { sortInTurns } from "@forkd/base";
import { AppError, type FileEntry } from "@forkd/contract";
import { fileBounds } from "./bounds.ts";
import type { AgentClient } from "./client.ts";
import { accepts, finish, operate, records, type FileOptions } from "./file-operation.ts";
import type { AgentProcess } from "./process/process.ts";
import type { GuestProgress } from "./progress.ts";
import { BadRecord } from "./wire/records.ts";
import { entryAt, entryIn, pathOf, pathPrefix, StatRecordParser } from "./wire/stat-records.ts";

/** Memory of an entry in addition to its texts. */
const entryBytes = 256;

/** Reads a file. Resolves at the first bytes or the end of the file; rejects if the file cannot be opened. */
export async function readFile(
  client: AgentClient,
  path: string,
  options: FileOptions & { readonly offset?: number; readonly limit?: number } = {},
): Promise<AsyncIterableIterator<Buffer>> {
  const { offset, limit } = options;
  const spec = { path, ...(offset !== undefined && { offset }), ...(limit !== undefined && { limit }) };
  const content = operate(client, "read", spec, options);
  const first = await content.next();
  return first.done ? content : withFirst(first.value, content);
}

/** Writes the whole file or, if the content or the call fails early, nothing (except with `append`). */
export async function writeFile(
  client: AgentClient,
  path: string,
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  options: FileOptions & {
    readonly mode?: number;
    readonly append?: boolean;
    readonly exclusive?: boolean;
    /** Write into the file instead of replacing it: not atomic. */
    readonly inPlace?: boolean;
  } = {},
): Promise<void> {
  const { mode, append = false, exclusive = false, inPlace = false } = options;
  const spec = { path, append, exclusive, inPlace, stdin: true, ...(mode !== undefined && { mode }) };
  const feed = async (process: AgentProcess, progress: GuestProgress): Promise<void> => {
    progress.callersTurn();
    for await (const bytes of content) {
      progress.guestsTurn();
      if (!(await accepts(process.write(bytes)))) return;
      progress.callersTurn();
    }
    progress.guestsTurn();
    await accepts(process.end());
  };
  await finish(operate(client, "write", spec, options, feed));
}

/** The entries of a directory and, with `depth`, of those below it, sorted by path. Follows no links. */
export async function listFiles(
  client: AgentClient,
  path: string,
  options: FileOptions & {
    readonly depth?: number;
    /** Counts the memory that the entries take. If it throws, the listing fails with that error. */
    readonly hold?: (bytes: number) => void;
  } = {},
): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  const parser = new StatRecordParser();
  const { depth = 1 } = options;
  let prefix: string | undefined;
  let left = fileBounds.listingBytes;
  await records(path, async () => {
    for await (const piece of operate(client, "list", { path, depth }, options)) {
      left -= piece.length;
      if (left < 0) throw tooLong(path, `its names have more than ${fileBounds.listingBytes} bytes`);
      let held = 0;
      for (const record of parser.push(piece)) {
        if (prefix === undefined) {
          // The first record is the directory itself.
          prefix = pathPrefix(pathOf(path, record));
          continue;
        }
        const entry = entryIn(prefix, record, depth);
        held += memoryOfEntry(entry);
        if (entries.push(entry) > fileBounds.entries)
          throw tooLong(path, `it has more than ${fileBounds.entries} entries`);
      }
      options.hold?.(held);
    }
    parser.end();
    if (prefix === undefined) throw new BadRecord("no record");
  });
  await sortInTurns(entries, (one, other) => (one.path < other.path ? -1 : one.path > other.path ? 1 : 0));
  return entries;
}

function memoryOfEntry({ path, name, target, owner, group, resolved }: FileEntry): number {
  const texts = [path, name, target, owner, group, resolved?.path];
  return texts.reduce((sum, text) => sum + memoryOf(text ?? ""), entryBytes);
}

/** Only ASCII takes one byte for each character. */
function memoryOf(text: string): number {
  return Buffer.byteLength(text) === text.length ? text.length : 2 * text.length;
}

function tooLong(path: string, why: string): AppError {
  const details = { errno: "EOVERFLOW", limit: fileBounds.entries };
  return new AppError("guest_refused", `Cannot list "${path}": ${why}`, { details });
}

export async function statFile(
  client: AgentClient,
  path: string,
  options: FileOptions & { readonly follow?: boolean } = {},
): Promise<FileEntry> {
  const parser = new StatRecordParser();
  let entry: FileEntry | undefined;
  await records(path, async () => {
    for await (const piece of operate(client, "stat", { path, follow: options.follow ?? false }, options)) {
      for (const record of parser.push(piece)) {
        if (entry) throw new BadRecord("more than one record");
        entry = entryAt(path, record);
      }
    }
    parser.end();
    if (!entry) throw new BadRecord("no record");
  });
  if (!entry) throw new TypeError("statFile() got no entry");
  return entry;
}

export async function makeDirectory(
  client: AgentClient,
  path: string,
  options: FileOptions & { readonly mode?: number; readonly recursive?: boolean } = {},
): Promise<void> {
  const { mode, recursive = false } = options;
  await finish(operate(client, "mkdir", { path, recursive, ...(mode !== undefined && { mode }) }, options));
}

export async function moveFile(
  client: AgentClient,
  from: string,
  to: string,
  options: FileOptions = {},
): Promise<void> {
  await finish(operate(client, "move", { path: from, secondPath: to }, options));
}

export async function removeFile(
  client: AgentClient,
  path: string,
  options: FileOptions & { readonly recursive?: boolean } = {},
): Promise<void> {
  await finish(operate(client, "remove", { path, recursive: options.recursive ?? false }, options));
}

export async function changeMode(
  client: AgentClient,
  path: string,
  mode: number,
  options: FileOptions & { readonly recursive?: boolean } = {},
): Promise<void> {
  await finish(operate(client, "chmod", { path, mode, recursive: options.recursive ?? false }, options));
}

/** Not a generator: return() on one that has not started does not reach `rest`, which leaks the process. */
function withFirst(first: Buffer, rest: AsyncGenerator<Buffer>): AsyncIterableIterator<Buffer> {
  let head: Buffer | undefined = first;
  return {
    next: () => {
      if (head === undefined) return rest.next();
      const value = head;
      head = undefined;
      return Promise.resolve({ done: false, value });
    },
    return: () => {
      head = undefined;
      return rest.return(undefined);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
