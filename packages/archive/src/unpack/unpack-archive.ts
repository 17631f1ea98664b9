/** Unpacks an archive that arrives as a stream, without a copy of it. */
import { availableParallelism } from "node:os";
import { advice, AppError } from "@forkd/contract";
import { removeTree, Scope } from "@forkd/base";
import type { Store, StoredSnapshot } from "@forkd/store";
import { ByteReader } from "../file/byte-reader.ts";
import { StreamedBlobs } from "../file/streamed-blobs.ts";
import { InFlight } from "./in-flight.ts";
import { readBlob, type BlobSource } from "./read-parts.ts";
import { splitChunks, type UnpackProgress } from "./unpack-blobs.ts";
import { Unpacker, type UnpackOptions } from "./unpacker.ts";

export type UnpackArchiveOptions = Omit<UnpackOptions, "tag" | "resumable"> & {
  /** default: the tag under which it was packed */
  tag?: string | undefined;
  onProgress?: ((progress: UnpackProgress) => void) | undefined;
  /** called when it is known which snapshots there will be, before pages are read; may refuse by throwing */
  onOpen?: ((unpacker: Unpacker) => Promise<void> | void) | undefined;
};

/** The snapshots of the chain from the bottom. */
export async function unpackArchive(
  store: Store,
  stream: AsyncIterable<Uint8Array>,
  options: UnpackArchiveOptions,
): Promise<StoredSnapshot[]> {
  const { onProgress, onOpen, signal } = options;
  await using scope = new Scope();
  const reader = scope.use(new ByteReader(stream));
  const blobs = new StreamedBlobs(reader, async () => {
    const dir = await store.staging();
    scope.defer(() => removeTree(dir));
    return dir;
  });
  const index = await blobs.index();
  const tag = options.tag ?? index.tag ?? noTag();
  const source: BlobSource = { manifest: Buffer.alloc(0), read: (blob) => blobs.read(blob) };
  source.manifest = await readBlob(source, index.manifest, signal);
  const unpacker = scope.use(await Unpacker.open(store, source, { ...options, tag }));
  await onOpen?.(unpacker);
  const wanted = unpacker.missingBlobs();
  blobs.skip = (digest) => !wanted.some(({ blob }) => blob.digest === digest);
  const totalBytes = unpacker.missingChunks().reduce((sum, { length }) => sum + length, 0);
  let doneBytes = 0;
  const jobs = new InFlight(availableParallelism());
  scope.defer(() => jobs.settle());
  for (const { blob, chunks } of wanted) {
    for await (const { chunk, bytes } of splitChunks(blobs.read(blob), chunks, 0)) {
      signal?.throwIfAborted();
      await jobs.start(async () => {
        await unpacker.put(chunk, bytes);
        doneBytes += chunk.length;
        onProgress?.({ doneBytes, totalBytes });
      });
    }
  }
  await jobs.end();
  await blobs.end(unpacker.blobDigests);
  return await unpacker.finish();
}

function noTag(): never {
  throw new AppError("invalid_request", "Invalid request: tag: the archive does not name a tag", {
    remedy: advice("Give the snapshot a tag."),
  });
}
