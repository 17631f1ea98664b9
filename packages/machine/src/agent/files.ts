/** File operations in the guest. The agent runs each as a process with the permissions of the given user. */
import { sortInTurns } from "@forkd/base";
import { AppError, type FileEntry } from "@forkd/contract";
import { fileBounds } from "./bounds.ts";
import type { AgentClient } from "./client.ts";
import { fileRefusal } from "./errors.ts";
import { OutputTail } from "./process/output-tail.ts";
import type { AgentProcess } from "./process/process.ts";
import { GuestProgress } from "./progress.ts";
import type { AgentExit } from "./wire/replies.ts";
import type { ProcessKind, StartSpec } from "./wire/requests.ts";
import { BadRecord, entryAt, entryIn, pathPrefix, StatRecordParser } from "./wire/stat-records.ts";

/** Memory of an entry in addition to its texts. */
const entryBytes = 256;

interface FileOptions {
  readonly user?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

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
  } = {},
): Promise<void> {
  const { mode, append = false, exclusive = false } = options;
  const spec = { path, append, exclusive, stdin: true, ...(mode !== undefined && { mode }) };
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

/** The entries of a directory, sorted by name. */
export async function listFiles(
  client: AgentClient,
  path: string,
  options: FileOptions & {
    /** Counts the memory that the entries take. If it throws, the listing fails with that error. */
    readonly hold?: (bytes: number) => void;
  } = {},
): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  const parser = new StatRecordParser();
  const prefix = pathPrefix(path);
  let left = fileBounds.listingBytes;
  await records(path, async () => {
    for await (const piece of operate(client, "list", { path }, options)) {
      left -= piece.length;
      if (left < 0) throw tooLong(path, `its names have more than ${fileBounds.listingBytes} bytes`);
      let held = 0;
      for (const record of parser.push(piece)) {
        const entry = entryIn(prefix, record);
        held += entryBytes + memoryOf(entry.path) + memoryOf(entry.name) + memoryOf(entry.target ?? "");
        if (entries.push(entry) > fileBounds.entries)
          throw tooLong(path, `it has more than ${fileBounds.entries} entries`);
      }
      options.hold?.(held);
    }
    parser.end();
  });
  await sortInTurns(entries, (one, other) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0));
  return entries;
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

/** Runs one operation and yields its output. Throws if it fails. Ending the iteration early kills it. */
async function* operate(
  client: AgentClient,
  kind: ProcessKind,
  spec: StartSpec,
  options: FileOptions,
  feed?: (process: AgentProcess, progress: GuestProgress) => Promise<void>,
): AsyncGenerator<Buffer> {
  const { user, signal } = options;
  signal?.throwIfAborted();
  const action = `${kind} "${spec.path}"`;
  await using process = client.start({ ...spec, kind, ...(user !== undefined && { user }) });
  const progress = new GuestProgress(client, action);
  const stop = new AbortController();
  let failure: Error | undefined;
  const fail = (error: unknown): void => {
    if (stop.signal.aborted) return;
    failure ??= error instanceof Error ? error : new Error(String(error));
    progress.guestsTurn();
    process.kill();
  };
  const onAbort = (): void =>
    fail(new AppError("cancelled", `Cannot ${action}: cancelled`, { cause: signal?.reason }));
  signal?.addEventListener("abort", onAbort, { signal: stop.signal });
  const stderr = new OutputTail();
  try {
    feed?.(process, progress).catch(fail);
    const { output } = process;
    for (;;) {
      const { done, value } = await progress.next(output.next());
      if (done) break;
      if (value.stream === 1) yield value.bytes;
      else stderr.push(value.bytes);
    }
    const exit = await progress.next(process.exit);
    if (failure) throw failure;
    check(action, exit, stderr.text().trim());
  } finally {
    stop.abort();
  }
}

/** False if the operation has ended; its exit says why. */
async function accepts(write: Promise<void>): Promise<boolean> {
  return write.then(
    () => true,
    () => false,
  );
}

function check(action: string, exit: AgentExit, text: string): void {
  if (exit.code === 0) return;
  if (exit.code !== undefined) throw fileRefusal(action, exit.code, text);
  throw new AppError("guest_refused", `Cannot ${action}: killed by signal ${exit.signal}`, {
    details: { signal: exit.signal },
  });
}

async function finish(operation: AsyncGenerator<Buffer>): Promise<void> {
  for await (const bytes of operation) void bytes;
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

async function records(path: string, read: () => Promise<void>): Promise<void> {
  try {
    await read();
  } catch (error) {
    if (!(error instanceof BadRecord)) throw error;
    const message = `Cannot read "${path}": the guest sent a malformed record (${error.message})`;
    throw new AppError("guest_refused", message, { details: { errno: "EPROTO" }, cause: error });
  }
}
