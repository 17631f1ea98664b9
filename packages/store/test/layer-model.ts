/** Layers as the capture program writes them, and the flat images that tests compare them with. */
import { open, readFile } from "node:fs/promises";
import { encodeExtent, extentBytes, headerBytes, pageBytes, type LayerShape } from "../src/layer-format.ts";
import { finishLayer, type FinishedLayer } from "../src/finish-layer.ts";

/** page number → byte that fills it */
export type Pages = ReadonlyMap<number, number>;

export function extentsOf(pages: Pages): { first: number; count: number }[] {
  const extents: { first: number; count: number }[] = [];
  for (const page of [...pages.keys()].sort((a, b) => a - b)) {
    const last = extents.at(-1);
    if (last !== undefined && last.first + last.count === page) last.count++;
    else extents.push({ first: page, count: 1 });
  }
  return extents;
}

/** A layer without header and digests. */
export async function writePages(path: string, memoryBytes: number, pages: Pages): Promise<LayerShape> {
  const extents = extentsOf(pages);
  const bytes = Buffer.alloc(headerBytes + pages.size * pageBytes + extents.length * extentBytes);
  let at = headerBytes;
  for (const page of [...pages.keys()].sort((a, b) => a - b)) {
    bytes.fill(pages.get(page) ?? 0, at, (at += pageBytes));
  }
  for (const { first, count } of extents) {
    encodeExtent(bytes, at, first, count);
    at += extentBytes;
  }
  await using file = await open(path, "wx");
  await file.writeFile(bytes);
  return { memoryBytes, pages: pages.size, extents: extents.length };
}

export async function writeLayer(path: string, memoryBytes: number, pages: Pages): Promise<FinishedLayer> {
  return finishLayer(path, await writePages(path, memoryBytes, pages));
}

/** A copy of `flat` with the pages written to it. */
export function overlay(flat: Buffer, pages: Pages): Buffer {
  const result = Buffer.from(flat);
  for (const [page, byte] of pages) result.fill(byte, page * pageBytes, (page + 1) * pageBytes);
  return result;
}

export async function fileEquals(path: string, expected: Buffer): Promise<boolean> {
  return (await readFile(path)).equals(expected);
}

/** Pseudo-random numbers that are the same in every run (mulberry32). */
export function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Runs of different lengths at random places, some of them zero pages. */
export function randomPages(random: (below: number) => number, memoryPages: number, runs: number): Pages {
  const pages = new Map<number, number>();
  for (let run = 0; run < runs; run++) {
    const first = random(memoryPages);
    const count = 1 + random(random(4) === 0 ? 300 : 5);
    const byte = random(256);
    for (let page = first; page < Math.min(first + count, memoryPages); page++) pages.set(page, byte);
  }
  return pages;
}
