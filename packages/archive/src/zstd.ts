/**
 * Compression by the zstd program: Node 20 has none, and a process per chunk uses every processor. Chunks are
 * compressed from file to file: the pages do not pass through this process, which would be slower than zstd. What
 * is decompressed is bounded, so that a frame that claims less than it has is refused.
 *
 * Worker threads load this module, so that it needs no library.
 */
import { spawn, type StdioOptions } from "node:child_process";
import { AppError } from "@forkd/contract/wire";

const program = "zstd";
/** A chunk takes seconds at the highest level on a slow host. */
const deadlineMs = 600_000;
/** Larger than the window of any frame that is written here. */
const maxWindow = "--memory=64MB";

/** One frame that says how long its content is, without a checksum: digests cover it. */
function compressArguments(bytes: number, level: number): string[] {
  return [
    "-q",
    "-c",
    `-${level}`,
    "--single-thread",
    "--no-check",
    // Finds what repeats anywhere in a chunk.
    "--long=24",
    `--stream-size=${bytes}`,
  ];
}

export async function compress(bytes: Uint8Array, level: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  await run(compressArguments(bytes.length, level), { input: bytes, output: (piece) => pieces.push(piece) });
  return Buffer.concat(pieces);
}

/** From and to open files whose offsets are at their beginnings. */
export async function compressFile(
  source: number,
  target: number,
  options: { bytes: number; level: number; signal?: AbortSignal | undefined },
): Promise<void> {
  const { bytes, level, signal } = options;
  await run(compressArguments(bytes, level), { input: source, output: target, signal });
}

/** Thrown when bytes are not a frame, or a longer one than allowed. */
export class BadFrame extends Error {
  override readonly name = "BadFrame";
}

const decompressArguments = ["-q", "-d", "-c", maxWindow];

/** Throws BadFrame if the content has more than `most` bytes. */
export async function decompress(bytes: Uint8Array, most: number, signal?: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  const output = (piece: Buffer): void => {
    length += piece.length;
    if (length > most) throw tooLong(most);
    pieces.push(piece);
  };
  await run(decompressArguments, { input: bytes, output, signal });
  return Buffer.concat(pieces, length);
}

/** Between open files. Throws BadFrame if the content has more than `most` bytes. */
export async function decompressFile(source: number, target: number, most: number): Promise<void> {
  await run(decompressArguments, { input: source, output: target, most });
}

function tooLong(most: number): BadFrame {
  return new BadFrame(`it has more than ${most} bytes`);
}

export function zstdMissing(cause: unknown): AppError {
  return new AppError("host_not_ready", "Cannot pack or unpack: the program zstd is missing", {
    details: { program },
    remedy: { action: "install", packages: ["zstd"] },
    cause,
  });
}

type Work = {
  /** bytes, or an open file */
  input: Uint8Array | number;
  /** an open file, or a function whose failure ends the program and is thrown */
  output: number | ((piece: Buffer) => void);
  /** length that an output file may have */
  most?: number | undefined;
  signal?: AbortSignal | undefined;
};

async function run(args: readonly string[], { input, output, most, signal }: Work): Promise<void> {
  signal?.throwIfAborted();
  const stdio: StdioOptions = [
    typeof input === "number" ? input : "pipe",
    typeof output === "number" ? output : "pipe",
    "pipe",
  ];
  const command = [...(most === undefined ? [] : ["prlimit", `--fsize=${most}`]), program, ...args];
  // The environment can change level and threads.
  const env = { PATH: process.env["PATH"] };
  const child = spawn(command[0] ?? program, command.slice(1), { stdio, env });
  let problem: Error | undefined;
  const stop = (error: Error): void => {
    problem ??= error;
    child.kill("SIGKILL");
  };
  const onAbort = (): void => stop(abortReason(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  const late = setTimeout(() => stop(new Error(`${program} did not finish`)), deadlineMs);
  child.stdout?.on("data", (piece: Buffer) => {
    if (problem !== undefined || typeof output === "number") return;
    try {
      output(piece);
    } catch (error) {
      stop(error instanceof Error ? error : new Error(String(error)));
    }
  });
  let complaint = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(0, 500);
  });
  // A program that refuses its input does not read it.
  child.stdin?.on("error", () => undefined);
  if (typeof input !== "number") child.stdin?.end(input);
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", (error) => {
        reject("code" in error && error.code === "ENOENT" ? zstdMissing(error) : error);
      });
      child.once("close", resolve);
    });
    if (problem !== undefined) throw problem;
    if (most !== undefined && child.signalCode === "SIGXFSZ") throw tooLong(most);
    if (code === null) throw Object.assign(new Error(`${program} was killed`), { code: "EHELPER" });
    if (code === 0) return;
    const reason = complaint.trim().split("\n")[0] ?? `${program} exited with ${code}`;
    if (reason.includes("No space left")) throw Object.assign(new Error(reason), { code: "ENOSPC" });
    throw new BadFrame(reason);
  } finally {
    clearTimeout(late);
    signal?.removeEventListener("abort", onAbort);
  }
}

function abortReason(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new Error(String(reason));
}
