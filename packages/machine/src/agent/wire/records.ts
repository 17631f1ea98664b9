/** Records that the agent writes to a stream, such as those of files. Pure. */

/** The guest sent an invalid record. The caller adds which operation failed. */
export class BadRecord extends Error {
  override readonly name = "BadRecord";
}

/** The length of a record as far as its bytes tell it, and whether they are all of it. */
export type RecordLength = { readonly length: number; readonly isWhole: boolean };

interface RecordLayout<T> {
  readonly maxBytes: number;
  /** The length of the record at `at`, as far as the bytes before `end` tell it. Throws BadRecord. */
  readonly measure: (bytes: Buffer, at: number, end: number) => RecordLength;
  readonly decode: (record: Buffer) => T;
}

/**
 * Reads records from pieces of a stream. A record inside one piece is read where it is. A record that spans
 * pieces is copied once into one buffer, so the work is linear for pieces of any size.
 */
export class RecordParser<T> {
  readonly #layout: RecordLayout<T>;
  readonly #cut: Buffer;
  #fill = 0;

  constructor(layout: RecordLayout<T>) {
    this.#layout = layout;
    this.#cut = Buffer.alloc(layout.maxBytes);
  }

  *push(piece: Buffer): Generator<T> {
    const { measure, decode } = this.#layout;
    for (let at = 0; at < piece.length;) {
      if (this.#fill === 0) {
        const { length, isWhole } = measure(piece, at, piece.length);
        if (isWhole) {
          yield decode(piece.subarray(at, at + length));
          at += length;
          continue;
        }
      }
      const missing = measure(this.#cut, 0, this.#fill).length - this.#fill;
      const copied = piece.copy(this.#cut, this.#fill, at, at + missing);
      this.#fill += copied;
      at += copied;
      if (!measure(this.#cut, 0, this.#fill).isWhole) continue;
      yield decode(this.#cut.subarray(0, this.#fill));
      this.#fill = 0;
    }
  }

  /** Throws if the last record is incomplete. */
  end(): void {
    if (this.#fill > 0) throw new BadRecord("the last record is cut");
  }
}

/** The length of a record that begins with `fixedBytes`, followed by texts with u16 lengths. */
export function measureTexts(
  bytes: Buffer,
  at: number,
  end: number,
  { fixedBytes, textBytes }: { readonly fixedBytes: number; readonly textBytes: readonly number[] },
): RecordLength {
  const here = end - at;
  let length = fixedBytes;
  for (const maxBytes of textBytes) {
    length += 2;
    if (here < length) return { length, isWhole: false };
    const text = bytes.readUInt16LE(at + length - 2);
    if (text > maxBytes) throw new BadRecord(`text of ${text} bytes`);
    length += text;
  }
  return { length, isWhole: here >= length };
}

/** Those texts, of a whole record. */
export function textsAfter(record: Buffer, fixedBytes: number, count: number): Buffer[] {
  let at = fixedBytes;
  return Array.from({ length: count }, () => {
    const from = at + 2;
    at = from + record.readUInt16LE(at);
    return record.subarray(from, at);
  });
}
