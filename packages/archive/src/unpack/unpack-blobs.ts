/** Unpacks a snapshot whose blobs can be read in parts, such as those of a registry. */
import { Scope } from "@forkd/base";
import type { Store, StoredSnapshot } from "@forkd/store";
import { badArchive } from "../format/bad-archive.ts";
import { InFlight } from "./in-flight.ts";
import type { BlobSource } from "./read-parts.ts";
import { Unpacker, type ChunkRef, type UnpackOptions } from "./unpacker.ts";

/** Compressed bytes of the pages. */
export type UnpackProgress = { doneBytes: number; totalBytes: number };

export type UnpackBlobsOptions = UnpackOptions & {
  /** reads at the same time; default 4 */
  atOnce?: number;
  onProgress?: ((progress: UnpackProgress) => void) | undefined;
  onOpen?: ((unpacker: Unpacker) => Promise<void> | void) | undefined;
};

/** Chunks that follow each other are read at once up to this length. */
const readBytes = 16 << 20;
const defaultAtOnce = 4;

/** The snapshots of the chain from the bottom. */
export async function unpackBlobs(
  store: Store,
  source: BlobSource,
  options: UnpackBlobsOptions,
): Promise<StoredSnapshot[]> {
  const { onProgress, onOpen, signal, atOnce = defaultAtOnce } = options;
  await using scope = new Scope();
  const unpacker = scope.use(await Unpacker.open(store, source, options));
  await onOpen?.(unpacker);
  const totalBytes = unpacker.missingChunks().reduce((sum, { length }) => sum + length, 0);
  let doneBytes = 0;
  const jobs = new InFlight(atOnce);
  scope.defer(() => jobs.settle());
  for (const { blob, chunks } of unpacker.missingBlobs()) {
    for (const group of consecutive(chunks)) {
      signal?.throwIfAborted();
      await jobs.start(async () => {
        const offset = group[0]?.offset ?? 0;
        const length = group.reduce((sum, each) => sum + each.length, 0);
        for await (const { chunk, bytes } of splitChunks(
          source.read(blob, { offset, length }),
          group,
          offset,
        )) {
          await unpacker.put(chunk, bytes);
          doneBytes += chunk.length;
          onProgress?.({ doneBytes, totalBytes });
        }
      });
    }
  }
  await jobs.end();
  return await unpacker.finish();
}

function* consecutive(chunks: readonly ChunkRef[]): Generator<ChunkRef[]> {
  let group: ChunkRef[] = [];
  let length = 0;
  for (const chunk of chunks) {
    const last = group.at(-1);
    const follows = last !== undefined && last.offset + last.length === chunk.offset;
    if (last && (!follows || length + chunk.length > readBytes)) {
      yield group;
      group = [];
      length = 0;
    }
    group.push(chunk);
    length += chunk.length;
  }
  if (group.length > 0) yield group;
}

/** The chunks among the bytes of a blob that begin at `position`. */
export async function* splitChunks(
  stream: AsyncIterable<Uint8Array>,
  chunks: readonly ChunkRef[],
  position: number,
): AsyncGenerator<{ chunk: ChunkRef; bytes: Buffer }> {
  const waiting = [...chunks];
  let at = position;
  let bytes = Buffer.alloc(0);
  let filled = 0;
  for await (const piece of stream) {
    for (let done = 0; done < piece.length;) {
      const [chunk] = waiting;
      if (!chunk) break;
      if (filled === 0) {
        const gap = Math.min(chunk.offset - at, piece.length - done);
        at += gap;
        done += gap;
        if (at < chunk.offset) break;
        bytes = Buffer.allocUnsafeSlow(chunk.length);
      }
      const part = piece.subarray(done, done + chunk.length - filled);
      bytes.set(part, filled);
      filled += part.length;
      done += part.length;
      if (filled < chunk.length) continue;
      at = chunk.offset + chunk.length;
      waiting.shift();
      filled = 0;
      yield { chunk, bytes };
    }
  }
  if (waiting[0]) throw badArchive(`blob ${waiting[0].blob} ends before its chunk ${waiting[0].index}`);
}
