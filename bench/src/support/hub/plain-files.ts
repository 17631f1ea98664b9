/** What people do without a hub: zstd, tar, cp, and a download from a web server. */
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, open, readdir, rm, stat } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { command } from "../deadline.ts";

const pageBytes = 4096;
const readBytes = 1024 * pageBytes;

/** Writes the pages of all files of a snapshot that are not zero, one after the other. Returns their bytes. */
export async function writeNonZero(dir: string, target: string): Promise<number> {
  const zero = Buffer.alloc(pageBytes);
  const buffer = Buffer.alloc(readBytes);
  await using output = await open(target, "w");
  let written = 0;
  for (const name of (await readdir(dir)).sort()) {
    await using input = await open(join(dir, name));
    for (;;) {
      const { bytesRead } = await input.read(buffer, 0, readBytes, null);
      if (bytesRead === 0) break;
      const kept: Buffer[] = [];
      for (let at = 0; at < bytesRead; at += pageBytes) {
        const page = buffer.subarray(at, Math.min(at + pageBytes, bytesRead));
        if (!page.equals(zero.subarray(0, page.length))) kept.push(page);
      }
      for (const page of kept) written += (await output.write(page)).bytesWritten;
    }
  }
  return written;
}

/** Compresses a file with all cores; returns how long it took and what is left. */
export async function compress(source: string, options: readonly string[]): Promise<Measured> {
  const target = `${source}.zst`;
  const started = performance.now();
  await command("zstd", ["-q", "-f", "-T0", ...options, source, "-o", target], { secs: 3600 });
  const measured = { wallMs: performance.now() - started, bytes: (await stat(target)).size };
  await rm(target);
  return measured;
}

type Measured = { wallMs: number; bytes: number };

/** Packs a copy of the directory: links to its files come and go, which tar takes for changes. */
export async function makeTar(dir: string, target: string): Promise<number> {
  const copy = `${target}-files`;
  await command("cp", ["-r", "--sparse=always", dir, copy], { secs: 3600 });
  await command("tar", ["--zstd", "-C", copy, "-cf", target, "."], { secs: 3600 });
  await rm(copy, { recursive: true });
  return (await stat(target)).size;
}

/** Unpacks to `scratch` and copies the result to where it is used. */
export async function untarAndCopy(archive: string, scratch: string): Promise<number> {
  const [unpacked, used] = [join(scratch, "unpacked"), join(scratch, "used")];
  await mkdir(unpacked, { recursive: true });
  const started = performance.now();
  await command("tar", ["--zstd", "-C", unpacked, "-xf", archive], { secs: 3600 });
  await command("cp", ["-a", unpacked, used], { secs: 3600 });
  const wallMs = performance.now() - started;
  for (const path of [unpacked, used]) await rm(path, { recursive: true });
  return wallMs;
}

/** Downloads the archive from a web server on this host, and unpacks it. */
export async function downloadAndUntar(archive: string, scratch: string): Promise<number> {
  const server = createServer((_, response) => void createReadStream(archive).pipe(response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const unpacked = join(scratch, "unpacked");
  const copy = join(scratch, "download");
  await mkdir(unpacked, { recursive: true });
  try {
    const started = performance.now();
    const { body } = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    if (!body) throw new Error("The download has no body");
    await pipeline(Readable.fromWeb(body as never), createWriteStream(copy));
    await command("tar", ["--zstd", "-C", unpacked, "-xf", copy], { secs: 3600 });
    return performance.now() - started;
  } finally {
    server.closeAllConnections();
    server.close();
    for (const path of [unpacked, copy]) await rm(path, { recursive: true, force: true });
  }
}
