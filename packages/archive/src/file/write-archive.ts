/** A packed snapshot as one file: an OCI image layout in a tar, in the order in which a reader needs its parts. */
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { mediaTypes } from "../format/media-types.ts";
import type { PackedSnapshot } from "../pack/pack.ts";
import { blobName, layoutName, layoutText, indexName, refName } from "./layout.ts";
import { blockBytes, encodeHeader, paddingOf, trailer } from "./tar.ts";

type Part = { name: string; size: number; open: () => AsyncIterable<Uint8Array>; digest?: string };

/** Length of the file, and its bytes. */
export function writeArchive(packed: PackedSnapshot): { bytes: number; stream: Readable } {
  const parts = partsOf(packed);
  const bytes = parts.reduce((sum, { size }) => sum + blockBytes + size + paddingOf(size), trailer.length);
  return { bytes, stream: Readable.from(write(parts), { objectMode: false, highWaterMark: 1 << 20 }) };
}

function partsOf({ tag, manifest, blobs }: PackedSnapshot): Part[] {
  const index = {
    schemaVersion: 2,
    mediaType: mediaTypes.index,
    manifests: [
      {
        mediaType: mediaTypes.manifest,
        digest: manifest.digest,
        size: manifest.bytes.length,
        annotations: { [refName]: tag },
        artifactType: mediaTypes.artifact,
      },
    ],
  };
  return [
    fromBytes(layoutName, Buffer.from(layoutText)),
    fromBytes(indexName, Buffer.from(JSON.stringify(index))),
    fromBytes(blobName(manifest.digest), manifest.bytes),
    ...blobs.map(({ digest, size, open }) => ({ name: blobName(digest), size, digest, open: () => open() })),
  ];
}

function fromBytes(name: string, bytes: Buffer): Part {
  return { name, size: bytes.length, open: () => Readable.from([bytes]) };
}

async function* write(parts: readonly Part[]): AsyncGenerator<Uint8Array> {
  for (const { name, size, digest, open } of parts) {
    yield encodeHeader(name, size);
    const hash = createHash("sha256");
    for await (const piece of open()) {
      if (digest !== undefined) hash.update(piece);
      yield piece;
    }
    if (digest !== undefined && `sha256:${hash.digest("hex")}` !== digest)
      throw new Error(`Cannot write the archive: blob ${digest} is damaged`);
    yield Buffer.alloc(paddingOf(size));
  }
  yield trailer;
}
