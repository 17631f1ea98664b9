export { Store, snapshotFile, type BrokenSnapshot, type StoredSnapshot } from "./store.ts";
export { Draft, type SealedDraft } from "./draft.ts";
export { digestFile, type FileDigest } from "./digest.ts";
export {
  fileNames,
  kernelPositionSchema,
  manifestSchema,
  type FileRole,
  type Manifest,
  type ManifestFacts,
} from "./manifest.ts";
