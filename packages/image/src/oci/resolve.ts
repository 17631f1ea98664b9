/** Finds the image that a reference names: its config, and how to get its layers. */
import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { isErrno, removeTree, Scope } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { removeAbandoned, temporaryIn } from "../cache.ts";
import { throwIfCancelled, type BuildContext } from "../context.ts";
import { imageConfig, type ImageConfig } from "./image-config.ts";
import { maxUnpackedBytes } from "./limits.ts";
import { isCompressed, readPlain, type LayerFile } from "./layer-file.ts";
import {
  DocumentFault,
  parseConfig,
  parseIndexOrManifest,
  requireImage,
  type Descriptor,
  type ImageManifest,
} from "./manifest.ts";
import { choosePlatform, requirePlatform } from "./platform.ts";
import type { ImageReference } from "./reference.ts";
import { Archive } from "./sources/archive.ts";
import { hexOf, readSavedImage } from "./sources/docker-archive.ts";
import { filesOfArchive, filesOfDirectory, openLayout } from "./sources/layout.ts";
import type { BlobSource } from "./sources/source.ts";
import { LayerFault } from "./tree/layer-fault.ts";

type ResolvedImage = {
  /** digest of the manifest, or of the config of a saved image */
  digest: string;
  /** digest of the config as hex: it names the content of all layers */
  configDigest: string;
  config: ImageConfig;
  /** gets the layers that are not on this host yet, from the bottom up */
  fetchLayers: () => Promise<LayerFile[]>;
};

const maxDepth = 4;

type ResolveInput = {
  /** for messages */
  name: string;
  reference: ImageReference;
  imageDir: string;
  /** opens images of registries */
  openRegistry: (name: string) => BlobSource;
};

/** Temporary files belong to `scope`. Throws `invalid_image`. */
export async function resolveImage(
  input: ResolveInput,
  scope: Scope,
  context: BuildContext,
): Promise<ResolvedImage> {
  const { reference, name } = input;
  const explained = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      throwIfCancelled(context.signal);
      throw explain(name, error);
    }
  };
  const image = await explained(async () =>
    reference.kind === "registry"
      ? await fromBlobs(input.openRegistry(reference.name))
      : await fromPath(input, reference, scope, context),
  );
  return { ...image, fetchLayers: () => explained(image.fetchLayers) };
}

function explain(name: string, error: unknown): unknown {
  if (!(error instanceof DocumentFault || error instanceof LayerFault)) return error;
  return new AppError("invalid_image", `Cannot use the image "${name}": ${error.message}`, { cause: error });
}

async function fromPath(
  { imageDir }: ResolveInput,
  { path, tag, kind }: Exclude<ImageReference, { kind: "registry" }>,
  scope: Scope,
  context: BuildContext,
): Promise<ResolvedImage> {
  const info = await stat(path).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "EACCES", "ELOOP")) throw error;
    throw new DocumentFault("no such file or directory, or it cannot be read", { cause: error });
  });
  if (info.isDirectory()) return await fromBlobs(openLayout(filesOfDirectory(path), tag));
  if (!info.isFile()) throw new DocumentFault("it is neither a file nor a directory");
  const plain = await plainArchive(imageDir, { path, size: info.size }, scope, context);
  const archive = await Archive.open(plain);
  // Newer versions of Docker write both; each is used if it is the only one.
  const isSaved = archive.find("manifest.json") !== undefined;
  const isLayout = archive.find("index.json") !== undefined;
  if (!isSaved && !isLayout)
    throw new DocumentFault("it has neither manifest.json nor index.json, so it is not a container image");
  if (kind === "oci" ? isLayout : !isSaved) return await fromBlobs(openLayout(filesOfArchive(archive), tag));
  const { config, configDigest, layers } = await readSavedImage(archive, tag);
  requirePlatform(config);
  return {
    digest: `sha256:${configDigest}`,
    configDigest,
    config: imageConfig(config),
    fetchLayers: () => Promise.resolve(layers),
  };
}

/** The path of an archive that is not compressed: itself, or a temporary copy. */
async function plainArchive(
  imageDir: string,
  { path, size }: { path: string; size: number },
  scope: Scope,
  { signal, onProgress }: BuildContext,
): Promise<string> {
  const part = { path, offset: 0, size };
  if (!(await isCompressed(part))) return path;
  onProgress?.("read", `Decompressing ${path}`);
  const parent = join(imageDir, "blobs");
  await mkdir(parent, { recursive: true, mode: 0o700 });
  await removeAbandoned(parent);
  const directory = temporaryIn(parent);
  scope.defer(() => removeTree(directory));
  await mkdir(directory, { mode: 0o700 });
  const plain = join(directory, "archive.tar");
  const bytes = await readPlain(part, { maxBytes: maxUnpackedBytes, signal });
  await pipeline(bytes, createWriteStream(plain, { mode: 0o600 }));
  return plain;
}

async function fromBlobs(source: BlobSource): Promise<ResolvedImage> {
  const { digest, manifest } = await findManifest(source);
  requireImage(manifest);
  const bytes = await checkedDocument(source, manifest.config);
  const config = parseConfig(bytes);
  requirePlatform(config);
  const { diff_ids: diffIds } = config.rootfs;
  const { layers } = manifest;
  if (layers.length !== diffIds.length)
    throw new DocumentFault(`it has ${layers.length} layers, but its config names ${diffIds.length}`);
  return {
    digest,
    configDigest: hexOf(manifest.config.digest),
    config: imageConfig(config),
    fetchLayers: async () => {
      const parts = await source.layers(layers);
      return parts.map((part, index): LayerFile => {
        const { digest: own = "" } = layers[index] ?? {};
        return { ...part, digest: hexOf(own), diffId: hexOf(diffIds[index] ?? "") };
      });
    },
  };
}

/** Goes from an index to the manifest for this host. */
async function findManifest(source: BlobSource): Promise<{ digest: string; manifest: ImageManifest }> {
  let { bytes, mediaType } = await source.top();
  let digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
  for (let depth = 0; depth < maxDepth; depth++) {
    const parsed = parseIndexOrManifest(bytes, mediaType);
    if ("manifest" in parsed) return { digest, manifest: parsed.manifest };
    const chosen = choosePlatform(parsed.index);
    bytes = await checkedDocument(source, chosen);
    ({ digest, mediaType } = chosen);
  }
  throw new DocumentFault("its indexes are nested too deeply");
}

async function checkedDocument(source: BlobSource, descriptor: Descriptor): Promise<Uint8Array> {
  const bytes = await source.document(descriptor);
  const found = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
  if (found !== descriptor.digest)
    throw new DocumentFault(`the document ${descriptor.digest} is damaged: its digest is ${found}`);
  return bytes;
}
