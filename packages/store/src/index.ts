export { Store } from "./store.ts";
export type { BrokenSnapshot } from "./store-types.ts";
export {
  manifestId,
  parseManifest,
  readSnapshot,
  snapshotDisks,
  snapshotFile,
  type StoredSnapshot,
} from "./snapshot.ts";
export { snapshotFiles, type SnapshotFile } from "./snapshot-files.ts";
export { asideTag, maxChainDepth, maxLineage } from "./chain.ts";
export { Draft } from "./draft.ts";
export { removeLeftovers } from "./tombstone.ts";
export { type FileDigest } from "./digest.ts";
export { openLayer, type Layer } from "./layer.ts";
export { finishLayer } from "./finish-layer.ts";
export { mergeLayers } from "./merge-layers.ts";
export { mergeDisks } from "./disk-merge.ts";
export { copyMemory, type MemoryParts } from "./copy-memory.ts";
export { maxViewSegments, viewNamePattern, type MemoryView } from "./view-cache.ts";
export type { Evicted } from "./flat-cache.ts";
export { readAttachment } from "./verify.ts";
export { manifestName } from "./manifest.ts";
export { stampOf } from "./stamp.ts";
export { physicalBytes } from "./sizes.ts";
export {
  attachmentRoles,
  diskName,
  fileNames,
  maxAttachmentBytes,
  memoryBytes,
  type AttachmentRole,
  type Manifest,
  type ManifestFacts,
  type Origin,
} from "./manifest.ts";
