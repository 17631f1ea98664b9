/** Images of a registry. Blobs are kept by digest, so that images that share layers load them once. */
import { createWriteStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { isErrno, mapPool } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { parseReference, type Registries, type Repository } from "@forkd/registry";
import { z } from "zod";
import { ensureEntry, requireSpace } from "../../cache.ts";
import { throttleLines, type BuildContext } from "../../context.ts";
import { sha256, sha256File } from "../../files/digest.ts";
import type { FilePart } from "../file-part.ts";
import { DocumentFault, maxDocumentBytes, type Descriptor } from "../manifest.ts";
import { maxUnpackedBytes } from "../limits.ts";
import type { BlobSource } from "./source.ts";

const layersAtOnce = 3;
const mib = 2 ** 20;
const blobName = "blob";
const infoSchema = z.object({
  digest: z.string(),
  bytes: z.number(),
  mediaType: z.string(),
  source: z.string(),
});

/** `name` is `HOST/REPOSITORY[:TAG][@DIGEST]`; what is missing is that of Docker Hub, and `latest`. */
export function openRegistryImage(
  registries: Registries,
  name: string,
  { imageDir, context }: { imageDir: string; context: BuildContext },
): BlobSource {
  const reference = readReference(name);
  const repository = registries.repository(reference);
  const blobs = new BlobCache(repository, { imageDir, source: name, context });
  return {
    top: async () => {
      const { digest, tag = "latest" } = reference;
      // What a digest names does not change, so that it needs no network a second time.
      const kept = digest === undefined ? undefined : await blobs.keptDocument(digest);
      if (kept) return kept;
      const { bytes, mediaType, ...found } = await repository.manifest(digest ?? tag, context.signal);
      await blobs.keep({ mediaType, digest: found.digest, size: bytes.length }, [bytes]);
      return { bytes, mediaType };
    },
    document: async (descriptor) => await blobs.document(descriptor),
    layers: async (descriptors) => await fetchAll(blobs, descriptors, context),
  };
}

function readReference(name: string): ReturnType<typeof parseReference> {
  try {
    return parseReference(name);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "invalid_request") throw error;
    throw new DocumentFault(error.message, { cause: error });
  }
}

/** A failure ends the other downloads. */
async function fetchAll(
  blobs: BlobCache,
  descriptors: readonly Descriptor[],
  { signal, onProgress }: BuildContext,
): Promise<FilePart[]> {
  const total = descriptors.reduce((sum, { size }) => sum + size, 0);
  if (total > maxUnpackedBytes)
    throw new DocumentFault(`its layers have more than ${maxUnpackedBytes} bytes`);
  const failed = new AbortController();
  const both = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
  const often = throttleLines((line) => onProgress?.("download", line));
  let done = 0;
  const line = (): string =>
    `Downloaded ${toMib(done)} of ${toMib(total)} MiB in ${descriptors.length} layers`;
  let failure: { error: unknown } | undefined;
  const parts = await mapPool(descriptors, layersAtOnce, async (descriptor) => {
    try {
      const count = (bytes: number): void => {
        done += bytes;
        often(line());
      };
      return await blobs.file(descriptor, { signal: both, onBytes: count });
    } catch (error) {
      failure ??= { error };
      failed.abort();
      return undefined;
    }
  });
  if (failure) throw failure.error;
  if (done > 0) onProgress?.("download", line());
  return parts.filter((part) => part !== undefined);
}

function toMib(bytes: number): string {
  return (bytes / mib).toFixed(bytes < 10 * mib ? 1 : 0);
}

/** `<images>/blobs/<hex of the digest>/blob` */
class BlobCache {
  readonly #repository: Repository;
  readonly #place: { imageDir: string; source: string; context: BuildContext };

  constructor(repository: Repository, place: { imageDir: string; source: string; context: BuildContext }) {
    this.#repository = repository;
    this.#place = place;
  }

  /** A document that is in the cache already, and whole. */
  async keptDocument(digest: string): Promise<{ bytes: Uint8Array; mediaType: string } | undefined> {
    const directory = this.#directory(digest);
    try {
      const info = infoSchema.safeParse(JSON.parse(await readFile(join(directory, "info.json"), "utf8")));
      const bytes = await readFile(join(directory, blobName));
      if (!info.success || sha256(bytes) !== hex(digest)) return undefined;
      return { bytes, mediaType: info.data.mediaType };
    } catch (error) {
      if (isErrno(error, "ENOENT") || error instanceof SyntaxError) return undefined;
      throw error;
    }
  }

  async document(descriptor: Descriptor): Promise<Uint8Array> {
    if (descriptor.size > maxDocumentBytes)
      throw new DocumentFault(`its document ${descriptor.digest} is larger than ${maxDocumentBytes} bytes`);
    const isManifest = /manifest|index/.test(descriptor.mediaType);
    if (!isManifest) return await readFile((await this.file(descriptor, {})).path);
    const kept = await this.keptDocument(descriptor.digest);
    if (kept) return kept.bytes;
    const { bytes } = await this.#repository.manifest(descriptor.digest, this.#place.context.signal);
    await this.keep(descriptor, [bytes]);
    return bytes;
  }

  /** The blob as a file, from the registry unless it is in the cache. */
  async file(
    descriptor: Descriptor,
    options: { signal?: AbortSignal | undefined; onBytes?: ((bytes: number) => void) | undefined },
  ): Promise<FilePart> {
    return await this.keep(descriptor, this.#repository.readBlob(descriptor, options), options.signal);
  }

  /** Writes `bytes` to the cache, unless it has them. Their digest is compared, because a disk can damage them. */
  async keep(
    { digest, size, mediaType }: Pick<Descriptor, "digest" | "size" | "mediaType">,
    bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    signal = this.#place.context.signal,
  ): Promise<FilePart> {
    const { source, context } = this.#place;
    const { directory } = await ensureEntry({
      parent: join(this.#place.imageDir, "blobs"),
      digest: hex(digest),
      info: infoSchema,
      signal,
      lease: context.lease,
      isWhole: (directory) => hasDigest(join(directory, blobName), digest, signal),
      build: async (temporary) => {
        await requireSpace(temporary, size);
        await pipeline(bytes, createWriteStream(join(temporary, blobName), { mode: 0o600 }));
        return { digest, bytes: size, mediaType, source };
      },
    });
    return { path: join(directory, blobName), offset: 0, size };
  }

  #directory(digest: string): string {
    return join(this.#place.imageDir, "blobs", hex(digest));
  }
}

async function hasDigest(path: string, digest: string, signal: AbortSignal | undefined): Promise<boolean> {
  try {
    return (await sha256File(path, signal)) === hex(digest);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}

function hex(digest: string): string {
  return digest.slice(digest.indexOf(":") + 1);
}
