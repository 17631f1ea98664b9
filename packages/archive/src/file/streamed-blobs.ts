/**
 * The blobs of an archive that arrives as a stream. An archive that forkd wrote has them in the order in which
 * they are needed. Of another one, blobs that come too early wait in a directory.
 */
import { createReadStream } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { badArchive } from "../format/bad-archive.ts";
import type { Descriptor } from "../format/descriptor.ts";
import type { ByteReader } from "./byte-reader.ts";
import {
  checkLayout,
  digestOfName,
  indexName,
  isKnownDirectory,
  layoutName,
  maxLayoutBytes,
  parseIndex,
} from "./layout.ts";
import { blockBytes, decodeHeader, paddingOf, paxSize, type Entry } from "./tar.ts";

const maxEntries = 100_000;

export class StreamedBlobs {
  readonly #reader: ByteReader;
  /** where early blobs wait; made when it is needed */
  readonly #makeDirectory: () => Promise<string>;
  #directory: string | undefined;
  readonly #waiting = new Map<string, { path: string; size: number }>();
  readonly #seen = new Set<string>();
  #index: ReturnType<typeof parseIndex> | undefined;
  #hasLayout = false;
  #hasEnded = false;
  /** a blob whose header was read and whose content comes next */
  #ahead: { digest: string; size: number } | undefined;
  /** whether a blob that comes before another one is not needed */
  skip: (digest: string) => boolean = () => false;

  constructor(reader: ByteReader, makeDirectory: () => Promise<string>) {
    this.#reader = reader;
    this.#makeDirectory = makeDirectory;
  }

  /** The index, which other writers may have put at the end. */
  async index(): Promise<ReturnType<typeof parseIndex>> {
    while (!this.#index || !this.#hasLayout) {
      const blob = await this.#next();
      if (!blob) break;
      if (this.#index && this.#hasLayout) this.#ahead = blob;
      else await this.#keep(blob);
    }
    if (this.#index && this.#hasLayout) return this.#index;
    throw badArchive(`it has no ${this.#index ? layoutName : indexName}`);
  }

  /** A blob whose turn it is. Those before it in the stream are kept. */
  async *read(blob: Descriptor): AsyncGenerator<Uint8Array> {
    for (;;) {
      const kept = this.#waiting.get(blob.digest);
      if (kept) {
        requireSize(blob, kept.size);
        for await (const piece of createReadStream(kept.path, { highWaterMark: 1 << 20 })) {
          yield piece as Buffer;
        }
        await rm(kept.path, { force: true });
        this.#waiting.delete(blob.digest);
        return;
      }
      const next = await this.#next();
      if (!next) throw badArchive(`blob ${blob.digest} is missing`);
      if (next.digest === blob.digest) {
        requireSize(blob, next.size);
        yield* this.#reader.pieces(next.size);
        await this.#reader.exactly(paddingOf(next.size));
        return;
      }
      await this.#keep(next);
    }
  }

  /** Reads to the end and refuses what does not belong there: blobs that are not among `named`, other bytes. */
  async end(named: ReadonlySet<string>): Promise<void> {
    for (let next = await this.#next(); next; next = await this.#next()) {
      await this.#pass(next.size);
    }
    for (const name of this.#seen) {
      const digest = digestOfName(name);
      if (digest !== undefined && !named.has(digest))
        throw badArchive(`entry "${name}" is not named by its OCI manifest`);
    }
    for (let rest = await this.#reader.some(1 << 16); rest; rest = await this.#reader.some(1 << 16)) {
      if (rest.some((byte) => byte !== 0)) throw badArchive("something follows after its end");
    }
  }

  /** The next blob; undefined at the end. Reads the other files on the way. */
  async #next(): Promise<{ digest: string; size: number } | undefined> {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    if (ahead) return ahead;
    while (!this.#hasEnded) {
      const entry = await this.#header();
      if (!entry) {
        this.#hasEnded = true;
        break;
      }
      const { name, size, type } = entry;
      if (type === "directory") {
        if (!isKnownDirectory(name) || size !== 0) throw unknown(name);
        continue;
      }
      if (this.#seen.has(name)) throw badArchive(`entry "${name}" is there twice`);
      if (this.#seen.size === maxEntries) throw badArchive(`it has more than ${maxEntries} entries`);
      this.#seen.add(name);
      const digest = digestOfName(name);
      if (digest !== undefined) return { digest, size };
      if (name !== layoutName && name !== indexName) throw unknown(name);
      if (size > maxLayoutBytes) throw badArchive(`entry "${name}" has ${size} bytes`);
      const bytes = await this.#reader.exactly(size);
      await this.#reader.exactly(paddingOf(size));
      if (name === indexName) this.#index = parseIndex(bytes);
      else checkLayout(bytes);
      this.#hasLayout ||= name === layoutName;
    }
    return undefined;
  }

  async #header(): Promise<Entry | undefined> {
    let paxed: number | undefined;
    for (;;) {
      const entry = decodeHeader(await this.#reader.exactly(blockBytes));
      if (entry?.type !== "pax") return entry && { ...entry, size: paxed ?? entry.size };
      if (entry.size > maxLayoutBytes) throw badArchive(`a pax header has ${entry.size} bytes`);
      paxed = paxSize(await this.#reader.exactly(entry.size));
      await this.#reader.exactly(paddingOf(entry.size));
    }
  }

  async #pass(size: number): Promise<void> {
    for await (const _ of this.#reader.pieces(size + paddingOf(size))) continue;
  }

  async #keep({ digest, size }: { digest: string; size: number }): Promise<void> {
    if (this.skip(digest)) return this.#pass(size);
    this.#directory ??= await this.#makeDirectory();
    const path = join(this.#directory, digest.replace(":", "-"));
    const file = await open(path, "wx", 0o600);
    try {
      for await (const piece of this.#reader.pieces(size)) await file.writeFile(piece);
    } finally {
      await file.close();
    }
    await this.#reader.exactly(paddingOf(size));
    this.#waiting.set(digest, { path, size });
  }
}

function requireSize(blob: Descriptor, size: number): void {
  if (blob.size !== size) throw badArchive(`blob ${blob.digest} has ${size} bytes instead of ${blob.size}`);
}

function unknown(name: string): Error {
  return badArchive(`entry ${JSON.stringify(name)} does not belong to it`);
}
