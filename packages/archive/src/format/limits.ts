/** Numbers of the format. Format: docs/spec/archive.md. */

export const formatVersion = 1;
export const pageBytes = 4096;
/** Pages of one chunk, except the last of a blob. */
export const chunkPages = 4096;
export const chunkBytes = chunkPages * pageBytes;
/** Most bytes of a compressed chunk: what cannot be compressed has a few bytes more. */
export const maxPackedChunk = chunkBytes + (chunkBytes >> 7) + 1024;
/** Most pages of a file: page numbers have 32 bits, and lengths stay exact. */
export const maxFilePages = 2 ** 32;
export const maxManifestBytes = 4 << 20;
export const maxConfigBytes = 16 << 20;
/** Most runs in all maps of a chain: 256 MiB. */
export const maxRuns = 1 << 24;
/** Most chunks of a blob: 1 TiB of pages. */
export const maxChunks = 1 << 16;
/** Most bytes of a compressed map. */
export const maxPackedMap = 288 << 20;
/** Files of 1000 snapshots with several disk layers. */
export const maxFiles = 10_000;
