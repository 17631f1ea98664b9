/**
 * Compression by the zstd program: Node 20 has none, and a process per chunk uses every processor. The program
 * gets its input whole and its output is bounded, so that a frame that claims less than it has is refused.
 */
import { spawn } from "node:child_process";
import { AppError } from "@forkd/contract";
import { isErrno, ProgramFailure, runProgram } from "@forkd/base";

const program = "zstd";
/** A chunk takes seconds at the highest level on a slow host. */
const deadlineMs = 600_000;
/** Larger than the window of any frame that is written here. */
const maxWindow = "--memory=64MB";

/** One frame that says how long its content is, without a checksum: digests cover it. */
export function compress(bytes: Uint8Array, level: number, signal?: AbortSignal): Promise<Buffer> {
  const args = [
    "-q",
    "-c",
    `-${level}`,
    "--single-thread",
    "--no-check",
    // Finds what repeats anywhere in a chunk.
    "--long=24",
    `--stream-size=${bytes.length}`,
  ];
  return run(args, bytes, Number.MAX_SAFE_INTEGER, signal);
}

/** Thrown when bytes are not a frame, or a longer one than allowed. */
export class BadFrame extends Error {
  override readonly name = "BadFrame";
}

/** Throws BadFrame if the content has more than `most` bytes. */
export function decompress(bytes: Uint8Array, most: number, signal?: AbortSignal): Promise<Buffer> {
  return run(["-q", "-d", "-c", maxWindow], bytes, most, signal);
}

/** Version of the program; the compressed bytes may differ between versions. */
export async function zstdVersion(): Promise<string> {
  try {
    const { stdout } = await runProgram(program, ["-q", "--version"], { timeoutMs: 10_000 });
    return /v?(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? stdout.trim().slice(0, 64);
  } catch (error) {
    if (error instanceof ProgramFailure && error.isMissing) throw missing(error);
    throw error;
  }
}

function missing(cause: unknown): AppError {
  return new AppError("host_not_ready", "Cannot pack or unpack: the program zstd is missing", {
    details: { program },
    remedy: { action: "install", packages: ["zstd"] },
    cause,
  });
}

async function run(
  args: readonly string[],
  input: Uint8Array,
  most: number,
  signal?: AbortSignal,
): Promise<Buffer> {
  signal?.throwIfAborted();
  // The environment can change level and threads.
  const env = { PATH: process.env["PATH"] };
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"], env });
  const pieces: Buffer[] = [];
  let length = 0;
  let problem: Error | undefined;
  const stop = (error: Error): void => {
    problem ??= error;
    child.kill("SIGKILL");
  };
  const onAbort = (): void => stop(abortReason(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  const late = setTimeout(() => stop(new Error(`${program} did not finish`)), deadlineMs);
  child.stdout.on("data", (piece: Buffer) => {
    length += piece.length;
    if (length > most) stop(new BadFrame(`it has more than ${most} bytes`));
    else pieces.push(piece);
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(0, 500);
  });
  // A program that refuses its input does not read it.
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", (error) => reject(isErrno(error, "ENOENT") ? missing(error) : error));
      child.once("close", resolve);
    });
    if (problem !== undefined) throw problem;
    if (code === null) throw Object.assign(new Error(`${program} was killed`), { code: "EHELPER" });
    if (code !== 0) throw new BadFrame(complaint.trim().split("\n")[0] ?? `${program} exited with ${code}`);
    return Buffer.concat(pieces, length);
  } finally {
    clearTimeout(late);
    signal?.removeEventListener("abort", onAbort);
  }
}

function abortReason(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new Error(String(reason));
}
