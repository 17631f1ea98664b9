export { parseReference, parseRegistry, formatReference, isTagName, type Reference } from "./reference.ts";
export { digestOf, hashFor, isDigest, matches } from "./digest.ts";
export { Registries, type RegistriesOptions } from "./registries.ts";
export { Repository, type StoredManifest } from "./repository.ts";
export { checkAccess, listRepositories } from "./catalog.ts";
export {
  maxManifestBytes,
  mediaTypes,
  parseManifest,
  type Descriptor,
  type ImageIndex,
  type ImageManifest,
} from "./manifest.ts";
export { dropCredentials, findCredentials, keepCredentials } from "./credentials/find.ts";
export type { Credentials, FindCredentials } from "./credentials/credentials.ts";
export type { TransferOptions } from "./place.ts";
export type { UploadSource } from "./blobs/upload.ts";
export { RegistryTrouble } from "./errors.ts";
export { parseFileUrl, readFileAt, shownUrl, writeFileAt } from "./file.ts";
