/** Helpers that the tests of several packages share. Not published. */
export { gate, settled, type Gate } from "./gate.ts";
export { startRegistry, type TestRegistry } from "./docker-registry.ts";
export { manifestFacts } from "./manifest-facts.ts";
export { makeWheel } from "./make-wheel.ts";
export { rejectsWith } from "./rejects-with.ts";
export { temporaryDirectory } from "./temporary-directory.ts";
export { until } from "./until.ts";
export {
  addBlob,
  addImage,
  sha256,
  writeIndex,
  writeLayout,
  type Blob,
  type TestImage,
} from "./oci-layout.ts";
export { tarOf, type TarMember } from "./tar.ts";
