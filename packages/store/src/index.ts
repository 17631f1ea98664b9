export { Store, type BrokenSnapshot, type StoreOptions } from "./store.ts";
export { readSnapshot, snapshotDisks, snapshotFile, type StoredSnapshot } from "./snapshot.ts";
export { Draft, type DraftOptions, type SealOptions } from "./draft.ts";
export { removeLeftovers } from "./tombstone.ts";
export { digestFile, type FileDigest } from "./digest.ts";
export { maxChainDepth } from "./chain.ts";
export { applyLayer, openLayer, verifyLayer, type Layer } from "./layer.ts";
export { finishLayer, type FinishedLayer } from "./finish-layer.ts";
export { mergeLayers } from "./merge-layers.ts";
export { mergeDisks } from "./disk-merge.ts";
export type { CompactOptions, CompactStep } from "./compact.ts";
export type { CacheLimits, Evicted } from "./flat-cache.ts";
export { manifestName } from "./manifest.ts";
export { stampOf } from "./stamp.ts";
export { physicalBytes, type SnapshotSizes } from "./sizes.ts";
export type { VerifyOptions } from "./verify.ts";
export {
  diskName,
  fileNames,
  kernelPositionSchema,
  manifestSchema,
  memoryBytes,
  originSchema,
  type FileRole,
  type Manifest,
  type ManifestFacts,
  type Origin,
} from "./manifest.ts";
