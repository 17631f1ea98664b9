/**
 * Which parts of a sparse file hold data. Node has no SEEK_DATA, and reading the holes of an image of gigabytes fills
 * the page cache with zeros, so QEMU's image tool is asked for the map. A file without holes needs no question.
 */
import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { promisify } from "node:util";
import { z } from "zod";

export type DataRange = { start: number; end: number };

const mapSchema = z.array(z.object({ start: z.number(), length: z.number(), data: z.boolean() }));
const blockBytes = 512;
const maxMapBytes = 1 << 30;

export async function dataRanges(path: string): Promise<DataRange[]> {
  const { size, blocks } = await stat(path);
  if (blocks * blockBytes >= size) return [{ start: 0, end: size }];
  // A memory file may have very many extents, and half a map is none.
  const { stdout } = await promisify(execFile)(
    "qemu-img",
    ["map", "--output=json", "-f", "raw", "-U", path],
    {
      maxBuffer: maxMapBytes,
    },
  );
  const extents = mapSchema.parse(JSON.parse(stdout)).filter(({ data }) => data);
  // The tool counts in sectors; the file may end inside one.
  return extents.map(({ start, length }) => ({ start, end: Math.min(start + length, size) }));
}

/** The chunks of `chunkBytes` that a sorted list of ranges touches, each once. Pure. */
export function touchedChunks(ranges: readonly DataRange[], chunkBytes: number): number[] {
  const chunks: number[] = [];
  for (const { start, end } of ranges) {
    const first = Math.floor(start / chunkBytes);
    const last = Math.ceil(end / chunkBytes);
    for (let chunk = Math.max(first, (chunks.at(-1) ?? -1) + 1); chunk < last; chunk++) chunks.push(chunk);
  }
  return chunks;
}
