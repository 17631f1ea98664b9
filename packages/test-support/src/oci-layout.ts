/** Makes container images for tests: OCI layouts with any layers and configs. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

type TestLayer = {
  tar: Buffer;
  /** default: gzip */
  compression?: "gzip" | "zstd" | "none";
  /** default: that of the compression */
  mediaType?: string;
  /** default: that of the archive */
  diffId?: string;
};

export type TestImage = {
  layers: readonly TestLayer[];
  /** of the config: Env, Cmd, ... */
  config?: Record<string, unknown>;
  architecture?: string;
  /** default: OCI */
  types?: "oci" | "docker";
};

const ociLayer = "application/vnd.oci.image.layer.v1.tar";
const dockerLayer = "application/vnd.docker.image.rootfs.diff.tar";

export function sha256(bytes: Uint8Array | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}

export type Blob = { mediaType: string; digest: string; size: number };

/** Writes a blob to a layout. */
export async function addBlob(directory: string, bytes: Uint8Array, mediaType: string): Promise<Blob> {
  const hex = sha256(bytes);
  await mkdir(join(directory, "blobs", "sha256"), { recursive: true });
  await writeFile(join(directory, "blobs", "sha256", hex), bytes);
  return { mediaType, digest: `sha256:${hex}`, size: bytes.length };
}

/** Writes the blobs of an image to a layout and returns the descriptor of its manifest. */
export async function addImage(directory: string, image: TestImage): Promise<Blob> {
  const isDocker = image.types === "docker";
  const layers: Blob[] = [];
  for (const layer of image.layers) {
    const { bytes, suffix } = compress(layer);
    const type = isDocker ? `${dockerLayer}${suffix.replace("+", ".")}` : `${ociLayer}${suffix}`;
    layers.push(await addBlob(directory, bytes, layer.mediaType ?? type));
  }
  const config = {
    architecture: image.architecture ?? "amd64",
    os: "linux",
    rootfs: {
      type: "layers",
      diff_ids: image.layers.map(({ tar, diffId }) => diffId ?? `sha256:${sha256(tar)}`),
    },
    config: image.config ?? {},
  };
  const configType = isDocker
    ? "application/vnd.docker.container.image.v1+json"
    : "application/vnd.oci.image.config.v1+json";
  const mediaType = isDocker
    ? "application/vnd.docker.distribution.manifest.v2+json"
    : "application/vnd.oci.image.manifest.v1+json";
  const manifest = {
    schemaVersion: 2,
    mediaType,
    config: await addBlob(directory, Buffer.from(JSON.stringify(config)), configType),
    layers,
  };
  return await addBlob(directory, Buffer.from(JSON.stringify(manifest)), mediaType);
}

/** Writes `oci-layout` and `index.json`. */
export async function writeIndex(directory: string, manifests: readonly object[]): Promise<void> {
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  await writeFile(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests }));
}

/** A layout with one image. */
export async function writeLayout(directory: string, image: TestImage): Promise<string> {
  await writeIndex(directory, [await addImage(directory, image)]);
  return directory;
}

function compress({ tar, compression = "gzip" }: TestLayer): { bytes: Buffer; suffix: string } {
  if (compression === "none") return { bytes: tar, suffix: "" };
  if (compression === "gzip") return { bytes: gzipSync(tar), suffix: "+gzip" };
  return { bytes: execFileSync("zstd", ["-q", "-c"], { input: tar, maxBuffer: 2 ** 30 }), suffix: "+zstd" };
}
