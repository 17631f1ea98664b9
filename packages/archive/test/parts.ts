/** Archives taken apart, to be put together again in other ways. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { encodeHeader, paddingOf, trailer } from "../src/file/tar.ts";

type Entry = { name: string; bytes: Buffer };
type Descriptor = { mediaType: string; digest: string; size: number; annotations?: Record<string, string> };
type Manifest = { config: Descriptor; layers: Descriptor[] };
type Config = {
  version: number;
  manifests: string[];
  files: { bytes: number; digest: string; map: string; pages?: string }[];
};

export const digestOf = (bytes: Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
export const nameOf = (digest: string) => `blobs/sha256/${digest.slice(7)}`;

/** An archive taken apart, which can be changed and put together again with digests that fit. */
export class Parts {
  entries: Entry[];

  constructor(archive: Buffer) {
    this.entries = [...entriesOf(archive)];
  }

  get(name: string): Buffer {
    return this.entries.find((entry) => entry.name === name)?.bytes ?? assert.fail(`no ${name}`);
  }

  get manifest(): Manifest {
    return json<Manifest>(this.get(nameOf(this.#head.digest)));
  }

  get config(): Config {
    return json<Config>(this.get(nameOf(this.manifest.config.digest)));
  }

  get #head(): Descriptor {
    return (
      json<{ manifests: Descriptor[] }>(this.get("index.json")).manifests[0] ?? assert.fail("no manifest")
    );
  }

  /** Replaces a blob and the names of it. */
  replaceBlob(digest: string, bytes: Buffer): void {
    const made = digestOf(bytes);
    this.#rename(digest, made, bytes);
    const config = this.config;
    for (const file of config.files) {
      if (file.map === digest) file.map = made;
      if (file.pages === digest) file.pages = made;
    }
    const manifest = this.manifest;
    for (const layer of manifest.layers) {
      if (layer.digest === digest) Object.assign(layer, { digest: made, size: bytes.length });
    }
    this.setManifest(manifest);
    this.setConfig(config);
  }

  setConfig(config: object): void {
    const manifest = this.manifest;
    const bytes = Buffer.from(JSON.stringify(config));
    this.#rename(manifest.config.digest, digestOf(bytes), bytes);
    manifest.config = { ...manifest.config, digest: digestOf(bytes), size: bytes.length };
    this.setManifest(manifest);
  }

  setManifest(manifest: object): void {
    const bytes = Buffer.from(JSON.stringify(manifest));
    const head = this.#head;
    this.#rename(head.digest, digestOf(bytes), bytes);
    const entry = this.entries.find(({ name }) => name === "index.json");
    if (entry)
      entry.bytes = Buffer.from(
        JSON.stringify({
          schemaVersion: 2,
          manifests: [{ ...head, digest: digestOf(bytes), size: bytes.length }],
        }),
      );
  }

  #rename(from: string, to: string, bytes: Buffer): void {
    const entry = this.entries.find(({ name }) => name === nameOf(from)) ?? assert.fail(`no ${from}`);
    Object.assign(entry, { name: nameOf(to), bytes });
  }

  archive(): Buffer {
    return Buffer.concat([...this.entries.map(tarEntry), trailer]);
  }
}

function json<T>(bytes: Buffer): T {
  return JSON.parse(bytes.toString("utf8")) as T;
}

function* entriesOf(archive: Buffer): Generator<Entry> {
  for (let at = 0; archive.readUInt8(at) !== 0;) {
    const name = archive.toString("latin1", at, at + 100).replace(/\0.*$/s, "");
    const size = parseInt(archive.toString("latin1", at + 124, at + 135), 8);
    yield { name, bytes: archive.subarray(at + 512, at + 512 + size) };
    at += 512 + size + paddingOf(size);
  }
}

export function tarEntry({ name, bytes }: Entry): Buffer {
  return Buffer.concat([encodeHeader(name, bytes.length), bytes, Buffer.alloc(paddingOf(bytes.length))]);
}

/** A header of another type, with its checksum. */
export function headerOf(name: string, type: string, link = ""): Buffer {
  const header = encodeHeader(name, 0);
  header.write(type, 156, "latin1");
  header.write(link, 157, "latin1");
  header.write("        ", 148, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return header;
}
