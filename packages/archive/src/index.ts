export { BlobCache } from "./pack/blob-cache.ts";
export {
  PackedSnapshot,
  packSnapshot,
  type ExtraBlob,
  type PackedBlob,
  type PackOptions,
  type PackProgress,
} from "./pack/pack.ts";
export { writeArchive } from "./file/write-archive.ts";
export { Unpacker, type ChunkRef, type PlacedSnapshot, type UnpackOptions } from "./unpack/unpacker.ts";
export { type BlobSource } from "./unpack/read-parts.ts";
export { unpackArchive, type UnpackArchiveOptions } from "./unpack/unpack-archive.ts";
export { unpackBlobs, type UnpackBlobsOptions, type UnpackProgress } from "./unpack/unpack-blobs.ts";
export { mediaTypes } from "./format/media-types.ts";
export { parseManifest as parseOciManifest, type OciManifest } from "./format/oci-manifest.ts";
export { type Descriptor } from "./format/descriptor.ts";
