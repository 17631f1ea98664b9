/** Where the documents and layers of an image come from. */
import type { FilePart } from "../file-part.ts";
import type { Descriptor } from "../manifest.ts";

/** A place with blobs that are named by their digests. */
export type BlobSource = {
  /** the document that the reference names */
  top: () => Promise<{ bytes: Uint8Array; mediaType?: string | undefined }>;
  /** a manifest or a config, at most `maxDocumentBytes`; the caller compares the digest */
  document: (descriptor: Descriptor) => Promise<Uint8Array>;
  /** layers as files; the code that unpacks them compares the digests */
  layers: (descriptors: readonly Descriptor[]) => Promise<FilePart[]>;
};
