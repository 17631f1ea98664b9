/** Media types of the parts of a snapshot that travels. */
export const mediaTypes = {
  manifest: "application/vnd.oci.image.manifest.v1+json",
  index: "application/vnd.oci.image.index.v1+json",
  artifact: "application/vnd.forkd.snapshot.v1",
  config: "application/vnd.forkd.snapshot.config.v1+json",
  map: "application/vnd.forkd.snapshot.map.v1+zstd",
  pages: "application/vnd.forkd.snapshot.pages.v1+zstd",
} as const;
