/** Numbers of the chunks of `chunkBytes` that a sorted list of ranges overlaps, each once. Pure. */
export function touchedChunks(
  ranges: readonly { start: number; end: number }[],
  chunkBytes: number,
): number[] {
  const chunks: number[] = [];
  for (const { start, end } of ranges) {
    const first = Math.floor(start / chunkBytes);
    const last = Math.ceil(end / chunkBytes);
    for (let chunk = Math.max(first, (chunks.at(-1) ?? -1) + 1); chunk < last; chunk++) chunks.push(chunk);
  }
  return chunks;
}
