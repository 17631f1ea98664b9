/** `daemon.json`, in which a running daemon says where it listens, and the check that it is the right daemon. */
import { constants } from "node:fs";
import { open, realpath } from "node:fs/promises";
import { join, resolve } from "node:path";
import { AppError } from "@forkd/contract/wire";
import type { Transport, TransportRequest } from "../transport.ts";

/** What a running daemon writes into its data directory: where it listens, and where its token is. */
export type DaemonRecord = {
  /** Process id of the daemon. */
  pid?: number;
  /** Its unix socket. */
  socket?: string;
  /** Its address on TCP. */
  url?: string;
  /** File with its token. */
  token_file?: string;
};

const maxRecordBytes = 64 * 1024;

/**
 * The record of the daemon that uses the data directory; empty if there is none. A record that cannot be read
 * stops no client, because the next daemon replaces it: `problem` says what is wrong with it.
 */
export async function readDaemonRecord(
  dataDir: string,
): Promise<{ file: string; record: DaemonRecord; problem?: string }> {
  const file = join(dataDir, "daemon.json");
  try {
    const text = await readSmallFile(file);
    if (text === undefined) return { file, record: {} };
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null) throw new Error("it is not a JSON object");
    const texts = Object.entries(value).filter(([, each]) => typeof each === "string");
    const pid = "pid" in value && typeof value.pid === "number" ? { pid: value.pid } : {};
    return { file, record: { ...Object.fromEntries(texts), ...pid } };
  } catch (error) {
    return { file, record: {}, problem: error instanceof Error ? error.message : String(error) };
  }
}

/** undefined if there is no such file. Follows no link and waits for no pipe. */
async function readSmallFile(path: string): Promise<string | undefined> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  });
  if (file === undefined) return undefined;
  try {
    const facts = await file.stat();
    if (!facts.isFile()) throw new Error("it is not a regular file");
    if (facts.size > maxRecordBytes) throw new Error(`it has more than ${maxRecordBytes} bytes`);
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/**
 * Before the first request, asks the daemon for its data directory and throws `other_daemon` if that is not
 * the given one: an empty data directory names no socket, and on the default socket another daemon may listen.
 */
export function forDataDir(
  transport: Transport,
  { dataDir, socket }: { dataDir: string; socket: string },
): Transport {
  let isChecked = false;
  const check = async ({ signal }: TransportRequest): Promise<void> => {
    if (isChecked) return;
    const used = await dataDirOf(transport, signal);
    if (used !== undefined && !(await isSame(used, dataDir))) throw otherDaemon({ dataDir, used, socket });
    isChecked = true;
  };
  const after =
    <T>(send: (request: TransportRequest) => Promise<T>) =>
    async (request: TransportRequest): Promise<T> => {
      await check(request);
      return send(request);
    };
  const { tunnel } = transport;
  return Object.assign(after(transport), tunnel && { tunnel: after(tunnel) });
}

/** undefined if the daemon does not say. */
async function dataDirOf(
  transport: Transport,
  signal: TransportRequest["signal"],
): Promise<string | undefined> {
  const answer = await transport({ method: "GET", path: "/v1/status", headers: {}, signal });
  const text = await answer.text();
  if (answer.status !== 200) return undefined;
  try {
    const { data_dir: dir } = JSON.parse(text) as { data_dir?: unknown };
    return typeof dir === "string" ? dir : undefined;
  } catch {
    return undefined;
  }
}

async function isSame(first: string, second: string): Promise<boolean> {
  const [a, b] = await Promise.all([first, second].map((dir) => realpath(dir).catch(() => resolve(dir))));
  return a === b;
}

function otherDaemon(where: { dataDir: string; used: string; socket: string }): AppError {
  const { dataDir, used, socket } = where;
  return new AppError(
    "other_daemon",
    `Cannot use the daemon on ${socket}: its data directory is "${used}", not "${dataDir}"`,
    { details: { socket, data_dir: used, wanted: dataDir }, remedy: { action: "use_own_places" } },
  );
}
