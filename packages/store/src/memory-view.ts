/**
 * The memory of a chain as parts of its files: the whole memory at the bottom, and over it the pages of the
 * layers that no higher layer has. Format: docs/spec/memory-view.md.
 */
import type { BigIntStats } from "node:fs";
import { headerBytes, pageBytes, type Extents } from "./layer-format.ts";

const magic = Buffer.from("FKDMVIEW", "latin1");
const version = 1;
const viewHeaderBytes = 64;
const fileBytes = 40;
const segmentBytes = 32;
const maxPathBytes = 4095;

/** Pages that are adjacent in memory and in the file; all numbers are pages. */
export type Segment = { first: number; count: number; file: number; at: number };

export type ViewedFile = { path: string; facts: BigIntStats };

/** The extents of a layer file, which has its pages in the same order after its header. */
export function segmentsOf({ firsts, counts }: Extents, file: number): Segment[] {
  let at = headerBytes / pageBytes;
  return Array.from(firsts, (first, index) => {
    const count = counts[index] ?? 0;
    at += count;
    return { first, count, file, at: at - count };
  });
}

/** Both ascend and do not overlap. The result has what `upper` has, and the rest of `lower`. */
export function overlay(lower: readonly Segment[], upper: readonly Segment[]): Segment[] {
  const all: Segment[] = [];
  let next = 0;
  let below = lower[next++];
  for (const above of upper) {
    while (below !== undefined && below.first < above.first) {
      const end = Math.min(endOf(below), above.first);
      add(all, { ...below, count: end - below.first });
      below = end === endOf(below) ? lower[next++] : from(below, end);
    }
    add(all, above);
    while (below !== undefined && endOf(below) <= endOf(above)) below = lower[next++];
    if (below !== undefined && below.first < endOf(above)) below = from(below, endOf(above));
  }
  for (; below !== undefined; below = lower[next++]) add(all, below);
  return all;
}

function endOf({ first, count }: Segment): number {
  return first + count;
}

function from({ first, count, file, at }: Segment, page: number): Segment {
  const skipped = page - first;
  return { first: page, count: count - skipped, file, at: at + skipped };
}

function add(all: Segment[], segment: Segment): void {
  const last = all.at(-1);
  const continues =
    last?.file === segment.file && endOf(last) === segment.first && last.at + last.count === segment.at;
  if (last !== undefined && continues) all[all.length - 1] = { ...last, count: last.count + segment.count };
  else all.push(segment);
}

/** The first file has the whole memory. */
export function encodeView(files: readonly ViewedFile[], segments: readonly Segment[]): Buffer {
  const header = Buffer.alloc(viewHeaderBytes);
  const fileTable = Buffer.alloc(files.length * fileBytes);
  const segmentTable = Buffer.alloc(segments.length * segmentBytes);
  const paths = files.map(({ path }) => Buffer.from(`${path}\0`));
  files.forEach(({ path, facts }, index) => {
    const numbers = [facts.dev, facts.ino, facts.size, facts.mtimeNs];
    numbers.forEach((number, nth) => fileTable.writeBigUInt64LE(number, index * fileBytes + nth * 8));
    const length = Buffer.byteLength(path);
    if (length > maxPathBytes || path.includes("\0"))
      throw new Error(`Cannot use the path ${path} in a view`);
    fileTable.writeUInt32LE(length, index * fileBytes + 32);
  });
  segments.forEach(({ first, count, file, at }, index) => {
    const numbers = [first, at, count].map((pages) => BigInt(pages * pageBytes));
    numbers.forEach((number, nth) => segmentTable.writeBigUInt64LE(number, index * segmentBytes + nth * 8));
    segmentTable.writeUInt32LE(file, index * segmentBytes + 24);
  });
  const parts = [header, fileTable, segmentTable, ...paths];
  magic.copy(header);
  header.writeUInt32LE(version, 8);
  header.writeUInt32LE(pageBytes, 12);
  header.writeBigUInt64LE(files[0]?.facts.size ?? 0n, 16);
  header.writeUInt32LE(files.length, 24);
  header.writeUInt32LE(segments.length, 28);
  header.writeBigUInt64LE(BigInt(parts.reduce((sum, { length }) => sum + length, 0)), 32);
  return Buffer.concat(parts);
}
