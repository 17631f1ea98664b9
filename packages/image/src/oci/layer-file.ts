/** A layer in a file on the host: its content, decompressed, with its digests checked when it was read. */
import { spawn } from "node:child_process";
import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { isErrno } from "@forkd/base";
import { searchPath } from "../packages.ts";
import { notInstalled } from "../tool.ts";
import type { FilePart } from "./file-part.ts";
import { LayerFault } from "./tree/layer-fault.ts";

export type LayerFile = FilePart & {
  /** sha256 of the bytes in the file as hex; absent if only the content has one */
  digest?: string | undefined;
  /** sha256 of the decompressed bytes as hex */
  diffId: string;
};

const chunkBytes = 256 * 1024;

type Reading = {
  /** the decompressed bytes */
  content: AsyncIterable<Buffer>;
  /** compares the digests, when everything was read; throws LayerFault */
  check: () => void;
};

/** Reads at most `maxBytes` of decompressed content; more is a fault. */
export async function readLayer(
  layer: LayerFile,
  { maxBytes, signal }: { maxBytes: number; signal?: AbortSignal | undefined },
): Promise<Reading> {
  const blobHash = createHash("sha256");
  const contentHash = createHash("sha256");
  const compression = compressionOf(await headOf(layer));
  const blob = hashed(fileChunks(layer, signal), layer.digest === undefined ? [] : [blobHash]);
  const plain = compression === undefined ? blob : decompress(compression, blob, signal);
  return {
    content: bounded(hashed(plain, [contentHash]), maxBytes),
    check: () => {
      if (layer.digest !== undefined) compare(blobHash, layer.digest, "digest");
      compare(contentHash, layer.diffId, "diff_id");
    },
  };
}

/** A part of a file without its compression, if it has one. */
export async function readPlain(
  part: FilePart,
  { maxBytes, signal }: { maxBytes: number; signal?: AbortSignal | undefined },
): Promise<AsyncIterable<Buffer>> {
  const compression = compressionOf(await headOf(part));
  const bytes = fileChunks(part, signal);
  return bounded(compression === undefined ? bytes : decompress(compression, bytes, signal), maxBytes);
}

/** Whether readPlain() decompresses it. Throws LayerFault for a compression that images do not use. */
export async function isCompressed(part: FilePart): Promise<boolean> {
  return compressionOf(await headOf(part)) !== undefined;
}

function compare(hash: Hash, expected: string, what: string): void {
  const found = hash.digest("hex");
  if (found !== expected)
    throw new LayerFault(`its ${what} is sha256:${found}, but the image names sha256:${expected}`);
}

type Compression = "gzip" | "zstd";

/** By the first bytes: media types and archives do not always say it, and the diff_id proves it. */
function compressionOf(head: Buffer): Compression | undefined {
  const hex = head.toString("hex");
  if (hex.startsWith("1f8b")) return "gzip";
  // A skippable frame may come first.
  if (hex.startsWith("28b52ffd") || /^5.2a4d18/.test(hex)) return "zstd";
  if (hex.startsWith("fd377a58")) throw new LayerFault("it is compressed with xz, which images do not use");
  if (hex.startsWith("425a68")) throw new LayerFault("it is compressed with bzip2, which images do not use");
  return undefined;
}

async function headOf({ path, offset, size }: FilePart): Promise<Buffer> {
  const handle = await open(path, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(8), 0, Math.min(8, size), offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}

async function* fileChunks(
  { path, offset, size }: FilePart,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  if (size === 0) return;
  const stream = createReadStream(path, {
    start: offset,
    end: offset + size - 1,
    highWaterMark: chunkBytes,
    ...(signal && { signal }),
  });
  let bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    yield chunk;
  }
  if (bytes < size) throw new LayerFault(`the file has ${bytes} bytes instead of ${size}`);
}

async function* hashed(source: AsyncIterable<Buffer>, hashes: readonly Hash[]): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    for (const hash of hashes) hash.update(chunk);
    yield chunk;
  }
}

async function* bounded(source: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > maxBytes)
      throw new LayerFault(`the image has more than ${maxBytes} bytes when it is unpacked`);
    yield chunk;
  }
}

function decompress(
  compression: Compression,
  source: AsyncIterable<Buffer>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  return compression === "gzip" ? gunzip(source) : unzstd(source, signal);
}

async function* gunzip(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const stream = createGunzip({ chunkSize: chunkBytes });
  const fed = pipeline(Readable.from(source, { objectMode: false }), stream);
  fed.catch(() => undefined);
  try {
    yield* stream as AsyncIterable<Buffer>;
  } catch (error) {
    throw unreadable("gzip", error);
  } finally {
    stream.destroy();
  }
  await fed;
}

const missing = "not installed";

/** Node 20 has no zstd. The program ends when its input or the reader of its output does. */
async function* unzstd(
  source: AsyncIterable<Buffer>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  const child = spawn("zstd", ["-d", "-c", "-q"], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { PATH: searchPath(process.env["PATH"]), LC_ALL: "C.UTF-8" },
    ...(signal && { signal, killSignal: "SIGKILL" }),
  });
  const closed = new Promise<string | undefined>((resolve) => {
    let words = "";
    child.stderr.on("data", (bytes: Buffer) => (words = (words + bytes.toString("utf8")).slice(0, 500)));
    child.once("error", (error) => resolve(isErrno(error, "ENOENT") ? missing : error.message));
    child.once("close", (code) =>
      resolve(code === 0 ? undefined : words.trim() || `zstd exited with ${code}`),
    );
  });
  const fed = pipeline(source, child.stdin);
  // A program that has failed does not read its input; its own words say why.
  const inputError = fed.then(
    () => undefined,
    (error: unknown) => error,
  );
  try {
    yield* child.stdout as AsyncIterable<Buffer>;
    const failure = await closed;
    const cause = await inputError;
    if (cause instanceof LayerFault) throw cause;
    if (failure === missing) throw notInstalled("zstd");
    if (failure !== undefined) throw unreadable("zstd", new Error(failure));
    if (cause !== undefined) throw cause;
  } finally {
    child.kill("SIGKILL");
    await Promise.all([closed, inputError]);
  }
}

function unreadable(kind: Compression, error: unknown): unknown {
  if (error instanceof LayerFault || (error instanceof Error && error.name === "AbortError")) return error;
  const why = error instanceof Error ? error.message : String(error);
  return new LayerFault(`its ${kind} data cannot be read: ${why}`, { cause: error });
}
