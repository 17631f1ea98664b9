/** Encodes and parses the bytes of a memory layer; no I/O. Format: docs/spec/layer.md. */
import { AppError } from "@forkd/contract";
import { chunkBytes } from "./chunk-digests.ts";

export const pageBytes = 4096;
export const headerBytes = 4096;
export const extentBytes = 16;
export const digestBytes = 32;
/** How much of an extent table is read and parsed at once. */
export const tablePieceBytes = 1 << 17;
/** The part of the header that the index digest covers; the digest follows it. */
export const coveredHeaderBytes = 80;
/** Page numbers and counts have 32 bits. */
const memoryLimit = 2 ** 44;
const magic = Buffer.from("FKDLAYER", "latin1");
const version = 1;

/** The numbers that determine the layout. */
export type LayerShape = {
  /** length of the flat image */
  memoryBytes: number;
  pages: number;
  extents: number;
};

/** Runs of guest pages: ascending, disjoint and not adjacent. Page data is in the same order. */
export type Extents = { firsts: Uint32Array; counts: Uint32Array };

export function badLayer(problem: string): AppError {
  return new AppError("snapshot_corrupt", `Cannot use the memory layer: ${problem}`, {
    details: { problem },
  });
}

export function layoutOf({ pages, extents }: LayerShape) {
  const dataBytes = pages * pageBytes;
  const extentTable = headerBytes + dataBytes;
  const digestTable = extentTable + extents * extentBytes;
  const digestTableBytes = Math.ceil(dataBytes / chunkBytes) * digestBytes;
  return {
    data: headerBytes,
    dataBytes,
    extentTable,
    extentTableBytes: extents * extentBytes,
    digestTable,
    digestTableBytes,
    length: digestTable + digestTableBytes,
  };
}

/** Refuses numbers that no layer can have. */
export function checkShape({ memoryBytes, pages, extents }: LayerShape): void {
  if (memoryBytes === 0 || memoryBytes % pageBytes !== 0 || memoryBytes >= memoryLimit) {
    throw badLayer(`a memory of ${memoryBytes} bytes is not possible`);
  }
  if (pages > memoryBytes / pageBytes) throw badLayer(`it has ${pages} pages, more than the memory`);
  if (extents > pages || (extents === 0) !== (pages === 0)) {
    throw badLayer(`it has ${extents} extents for ${pages} pages`);
  }
}

/** The covered part of the header. */
export function encodeHeader(shape: LayerShape): Buffer {
  const header = Buffer.alloc(coveredHeaderBytes);
  const layout = layoutOf(shape);
  magic.copy(header, 0);
  header.writeUInt32LE(version, 8);
  header.writeUInt32LE(pageBytes, 12);
  const numbers = [
    shape.memoryBytes,
    shape.pages,
    shape.extents,
    layout.data,
    layout.extentTable,
    layout.digestTable,
    chunkBytes,
    layout.length,
  ];
  numbers.forEach((number, index) => header.writeBigUInt64LE(BigInt(number), 16 + index * 8));
  return header;
}

/** `block` is the first 4096 bytes of a file of `fileBytes`. */
export function parseHeader(block: Buffer, fileBytes: number): { shape: LayerShape; digest: Buffer } {
  if (!block.subarray(0, 8).equals(magic)) {
    throw badLayer(
      block.subarray(0, 8).equals(Buffer.alloc(8)) ? "it was never finished" : "it is not a layer",
    );
  }
  if (block.readUInt32LE(8) !== version)
    throw badLayer(`it has version ${block.readUInt32LE(8)}, not ${version}`);
  if (block.readUInt32LE(12) !== pageBytes) throw badLayer(`its pages have ${block.readUInt32LE(12)} bytes`);
  const number = (at: number): number => {
    const value = block.readBigUInt64LE(at);
    if (value > BigInt(Number.MAX_SAFE_INTEGER))
      throw badLayer(`the number at ${at} of its header is too large`);
    return Number(value);
  };
  const shape = { memoryBytes: number(16), pages: number(24), extents: number(32) };
  checkShape(shape);
  const { length } = layoutOf(shape);
  if (length !== fileBytes) throw badLayer(`its header says ${length} bytes, but the file has ${fileBytes}`);
  if (!encodeHeader(shape).equals(block.subarray(0, coveredHeaderBytes))) {
    throw badLayer("the offsets in its header are wrong");
  }
  const end = coveredHeaderBytes + digestBytes;
  if (block.subarray(end).some((byte) => byte !== 0))
    throw badLayer("its header is not zero after the digest");
  return { shape, digest: Buffer.from(block.subarray(coveredHeaderBytes, end)) };
}

/** Parses and checks an extent table piece by piece. */
export class ExtentParser {
  readonly #shape: LayerShape;
  readonly #extents: Extents;
  #next = 0;
  #pages = 0;
  /** the first page that may start an extent */
  #free = 0;

  constructor(shape: LayerShape) {
    this.#shape = shape;
    this.#extents = { firsts: new Uint32Array(shape.extents), counts: new Uint32Array(shape.extents) };
  }

  /** `table` is a whole number of entries. */
  add(table: Buffer): void {
    const memoryPages = this.#shape.memoryBytes / pageBytes;
    for (let at = 0; at < table.length; at += extentBytes, this.#next++) {
      const first = table.readUInt32LE(at) + table.readUInt32LE(at + 4) * 2 ** 32;
      const count = table.readUInt32LE(at + 8);
      if (table.readUInt32LE(at + 12) !== 0) throw this.#bad("has bytes that must be zero");
      if (count === 0) throw this.#bad("is empty");
      if (first + count > memoryPages) throw this.#bad("ends after the memory");
      if (first < this.#free) throw this.#bad("does not start after the previous one and a gap");
      this.#extents.firsts[this.#next] = first;
      this.#extents.counts[this.#next] = count;
      this.#pages += count;
      this.#free = first + count + 1;
    }
  }

  #bad(problem: string): AppError {
    return badLayer(`extent ${this.#next} of its table ${problem}`);
  }

  end(): Extents {
    if (this.#next !== this.#shape.extents) throw badLayer("its extent table is too short");
    if (this.#pages !== this.#shape.pages) {
      throw badLayer(`its extents hold ${this.#pages} pages, but its header says ${this.#shape.pages}`);
    }
    return this.#extents;
  }
}

export function encodeExtent(table: Buffer, at: number, first: number, count: number): void {
  table.writeBigUInt64LE(BigInt(first), at);
  table.writeUInt32LE(count, at + 8);
  table.writeUInt32LE(0, at + 12);
}
