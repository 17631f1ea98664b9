/**
 * The config of a snapshot that travels: the manifests of its chain as they are, and which blobs have the
 * content of their files. It does not contain the tag of the snapshot, so the same snapshot has the same config
 * under every tag.
 */
import { AppError, errorMessage, tagPattern } from "@forkd/contract";
import {
  manifestId,
  maxLineage,
  memoryBytes,
  parseManifest,
  snapshotFiles,
  type Manifest,
  type SnapshotFile,
} from "@forkd/store";
import { z } from "zod";
import { badArchive } from "./bad-archive.ts";
import { digestSchema } from "./descriptor.ts";
import { formatVersion, maxConfigBytes, maxFilePages, maxFiles, pageBytes } from "./limits.ts";

const fileSchema = z.strictObject({
  /** of the file, as in the manifests */
  bytes: z.int().min(0),
  digest: z.string().regex(/^[0-9a-f]{64}$/),
  /** blob of its map */
  map: digestSchema,
  /** blob of the pages that no earlier file has; absent if there are none */
  pages: digestSchema.optional(),
});
export type ConfigFile = z.output<typeof fileSchema>;

const configSchema = z.strictObject({
  version: z.literal(formatVersion),
  /** manifest.json of each snapshot, from the bottom of the chain */
  manifests: z.array(z.string()).min(1).max(maxLineage),
  files: z.array(fileSchema).max(maxFiles),
});

/** A file of the chain. Snapshots that share a file by digest have one entry. */
type ChainFile = Omit<SnapshotFile, "name">;
export type ChainSnapshot = {
  id: string;
  text: Buffer;
  manifest: Manifest;
  /** name in the directory of the snapshot → index in the files of the chain */
  files: ReadonlyMap<string, number>;
};
export type Chain = {
  /** from the bottom */
  snapshots: ChainSnapshot[];
  files: ChainFile[];
};
export type Config = Chain & { blobs: ConfigFile[] };

/** The files of a chain in their order: from the bottom, each once. Throws if the chain is not one. */
export function chainOf(texts: readonly Buffer[]): Chain {
  const indexes = new Map<string, number>();
  const files: ChainFile[] = [];
  const indexOf = ({ kind, bytes, digest }: SnapshotFile): number => {
    const key = `${kind}:${digest}`;
    const known = indexes.get(key);
    if (known !== undefined) {
      if (files[known]?.bytes !== bytes)
        throw badArchive(`two manifests give different lengths to file ${digest}`);
      return known;
    }
    if (Math.ceil(bytes / pageBytes) >= maxFilePages)
      throw badArchive(`file ${digest} has ${bytes} bytes, more than a file can have`);
    indexes.set(key, files.length);
    return files.push({ kind, bytes, digest }) - 1;
  };
  const snapshots = texts.map((text, index): ChainSnapshot => {
    const manifest = readManifest(text, index);
    const named = snapshotFiles(manifest).map((file) => [file.name, indexOf(file)] as const);
    return { id: manifestId(text), text, manifest, files: new Map(named) };
  });
  checkParents(snapshots);
  return { snapshots, files };
}

function readManifest(text: Buffer, index: number): Manifest {
  try {
    return parseManifest(`manifest ${index}`, text);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const problem = error.details["problem"];
    throw badArchive(
      `manifest ${index} of its chain: ${typeof problem === "string" ? problem : error.message}`,
      error,
    );
  }
}

function checkParents(snapshots: readonly ChainSnapshot[]): void {
  for (const [index, { manifest }] of snapshots.entries()) {
    const below = snapshots[index - 1];
    const { parent } = manifest;
    if (parent?.id !== below?.id) {
      throw badArchive(
        below === undefined
          ? `the parent "${parent?.tag}" of its lowest snapshot is missing`
          : `manifest ${index} of its chain is not a layer over the one below`,
      );
    }
    if (below && memoryBytes(below.manifest) !== memoryBytes(manifest))
      throw badArchive(`manifest ${index} of its chain has another memory size than the one below`);
    if (parent && !tagPattern.test(parent.tag)) throw badArchive(`"${parent.tag}" is not a tag`);
  }
}

export function encodeConfig(chain: Chain, blobs: readonly ConfigFile[]): Buffer {
  const manifests = chain.snapshots.map(({ text }) => text.toString("utf8"));
  return Buffer.from(`${JSON.stringify({ version: formatVersion, manifests, files: blobs })}\n`);
}

const versionSchema = z.object({ version: z.int() });

export function parseConfig(bytes: Buffer): Config {
  if (bytes.length > maxConfigBytes) throw badArchive(`its config has ${bytes.length} bytes`);
  const value = parseJson(bytes, "its config");
  const version = versionSchema.safeParse(value).data?.version;
  if (version !== undefined && version !== formatVersion)
    throw badArchive(`it has version ${version}, but this forkd reads version ${formatVersion}`);
  const parsed = configSchema.safeParse(value);
  if (!parsed.success) throw badArchive(`its config: ${z.prettifyError(parsed.error)}`, parsed.error);
  const texts = parsed.data.manifests.map((text) => Buffer.from(text, "utf8"));
  const chain = chainOf(texts);
  const { files } = parsed.data;
  if (files.length !== chain.files.length)
    throw badArchive(`its config has ${files.length} files, but its manifests name ${chain.files.length}`);
  for (const [index, { bytes: length, digest }] of chain.files.entries()) {
    if (files[index]?.digest !== digest || files[index].bytes !== length)
      throw badArchive(`file ${index} of its config is not the one that its manifests name`);
  }
  return { ...chain, blobs: files };
}

export function parseJson(bytes: Buffer, what: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw badArchive(`${what} cannot be read: ${errorMessage(error)}`, error);
  }
}
