/** Of all layers together, decompressed; also of an archive that is compressed as a whole. */
export const maxUnpackedBytes = 32 * 2 ** 30;
