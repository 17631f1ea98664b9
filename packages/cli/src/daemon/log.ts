/** Reads and follows the daemon's log file and formats its records. Needs no running daemon. */
import { watch } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { clean } from "../terminal/table.ts";

const levels = ["debug", "info", "warn", "error"] as const;
type LogLevel = (typeof levels)[number];
export const logLevels: readonly string[] = levels;

const chunkBytes = 64 * 1024;

export type LogRecord = Readonly<Record<string, unknown>>;

/** Parses a line. Text that is not a record, such as a crash message of Node, becomes a message. */
export function parseRecord(line: string): LogRecord {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as LogRecord;
  } catch {
    // not JSON
  }
  return { level: "error", event: "output", msg: line };
}

export function isAtLeast(record: LogRecord, level: string): boolean {
  const own = levels.findIndex((each) => each === record["level"]);
  return (own === -1 ? levels.length : own) >= levels.indexOf(level as LogLevel);
}

/** "03:15:42 WARN  runtime.reap  strays=[…]" */
export function formatRecord(record: LogRecord): string {
  const { time, level, event, msg, ...rest } = record;
  const when = typeof time === "string" ? time.replace("T", " ").replace(/\.\d+Z$/, "Z") : "-";
  const fields = Object.entries(rest).map(([key, value]) => `${key}=${formatValue(key, value)}`);
  const message = msg === undefined ? [] : [textOf(msg)];
  return clean([when, textOf(level).toUpperCase().padEnd(5), textOf(event), ...fields, ...message].join(" "));
}

function textOf(value: unknown): string {
  if (value === undefined) return "-";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function formatValue(key: string, value: unknown): string {
  // Only --json shows the stack of an error.
  if (key === "err" && typeof value === "object" && value !== null && "message" in value)
    return JSON.stringify(value.message);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return typeof value === "string" && /[\s"]/.test(text) ? JSON.stringify(text) : text;
}

/** Returns the last `count` records that match `wanted`; reads from the end, and no more than needed. */
export async function lastRecords(
  path: string,
  count: number,
  wanted: (record: LogRecord) => boolean,
): Promise<{ records: LogRecord[]; end: number }> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  const found: LogRecord[] = [];
  let start = size;
  let tail: Buffer = Buffer.alloc(0);
  while (start > 0 && found.length < count) {
    const length = Math.min(chunkBytes, start);
    start -= length;
    const chunk = Buffer.alloc(length);
    await file.read(chunk, 0, length, start);
    const data = Buffer.concat([chunk, tail]);
    // The first line may begin before this chunk.
    const from = start === 0 ? 0 : data.indexOf(10) + 1;
    if (start > 0 && from === 0) {
      tail = data;
      continue;
    }
    tail = data.subarray(0, from);
    const records = linesOf(data.subarray(from).toString("utf8")).map(parseRecord).filter(wanted);
    found.unshift(...records);
  }
  return { records: found.slice(-count), end: size };
}

function linesOf(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

/** Yields records after `offset` until the signal fires; reads a rotated or truncated file from the start. */
export async function* followRecords(
  path: string,
  offset: number,
  signal: AbortSignal,
): AsyncGenerator<LogRecord> {
  let wake = () => {};
  let hasChanged = true;
  // Watches the directory, because rotation replaces the file.
  const watcher = watch(dirname(path), (_, name) => {
    if (name !== null && name !== basename(path)) return;
    hasChanged = true;
    wake();
  });
  const stop = () => wake();
  signal.addEventListener("abort", stop, { once: true });
  let current = await openAt(path, offset);
  let rest = "";
  try {
    while (!signal.aborted) {
      if (!hasChanged) await new Promise<void>((resolve) => (wake = resolve));
      if (signal.aborted) return;
      hasChanged = false;
      // The rest of a replaced file comes before the content of the new one.
      let text = current ? await readRest(current) : "";
      const next = await openAt(path, 0);
      if (next && next.ino !== current?.ino) {
        await current?.file.close();
        current = next;
        text += await readRest(current);
      } else await next?.file.close();
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line !== "") yield parseRecord(line);
    }
  } finally {
    signal.removeEventListener("abort", stop);
    watcher.close();
    await current?.file.close();
  }
}

type Opened = { file: FileHandle; ino: number; offset: number };

/** Opens the file; undefined during a rotation, while there is none. */
async function openAt(path: string, offset: number): Promise<Opened | undefined> {
  try {
    const file = await open(path, "r");
    return { file, ino: (await file.stat()).ino, offset };
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

async function readRest(opened: Opened): Promise<string> {
  const { size } = await opened.file.stat();
  if (size < opened.offset) opened.offset = 0;
  const data = Buffer.alloc(size - opened.offset);
  const { bytesRead } = await opened.file.read(data, 0, data.length, opened.offset);
  opened.offset += bytesRead;
  return data.subarray(0, bytesRead).toString("utf8");
}
