export {
  formatReference,
  hasHost,
  parseReference,
  parseRegistry,
  usualRepository,
  type Reference,
} from "./reference.ts";
export { digestOf } from "./digest.ts";
export { Registries } from "./registries.ts";
export { Repository, type StoredManifest } from "./repository.ts";
export { checkAccess, listRepositories } from "./catalog.ts";
export { mediaTypes, parseManifest } from "./manifest.ts";
export { dropCredentials, findCredentials, keepCredentials } from "./credentials/find.ts";
export type { Credentials } from "./credentials/credentials.ts";
export { RegistryTrouble } from "./errors.ts";
export { parseFileUrl, readFileAt, shownUrl, writeFileAt } from "./file.ts";
