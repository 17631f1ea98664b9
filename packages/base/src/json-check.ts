/**
 * Checks that bytes are JSON (RFC 8259) without building any value, in one pass and with constant memory. The
 * result says in which way the bytes are not acceptable.
 */
import { isUtf8 } from "node:buffer";
import { nextTurn } from "./turns.ts";

type JsonBounds = {
  readonly maxDepth: number;
  /** default: as many as there are bytes */
  readonly maxValues?: number;
};
type JsonFault = "invalid" | "too deep" | "too many values";

const code = (text: string): number => text.charCodeAt(0);
const [quote, backslash, comma, colon] = [code('"'), code("\\"), code(","), code(":")];
const [openArray, closeArray, openObject, closeObject] = [code("["), code("]"), code("{"), code("}")];
const [zero, nine, minus, plus, dot] = [code("0"), code("9"), code("-"), code("+"), code(".")];
/** Bounds the memory of findJsonFault(). */
const maxSearchedDepth = 10_000;
const blanks = new Set([0x20, 0x09, 0x0a, 0x0d]);
const escapes = new Set(Array.from('"\\/bfnrt', code));
const words = new Map(["true", "false", "null"].map((word) => [code(word), Buffer.from(word)]));

/** The first fault, or undefined if the bytes are one JSON value within the bounds. */
export function checkJson(bytes: Buffer, bounds: JsonBounds): JsonFault | undefined {
  return isUtf8(bytes) ? new Walk(bytes, bounds).fault() : "invalid";
}

/** Bytes that one turn of the event loop checks: at most some milliseconds. */
const bytesPerTurn = 64 * 1024;

/** Like checkJson(), in short turns of the event loop. */
export async function checkJsonInTurns(bytes: Buffer, bounds: JsonBounds): Promise<JsonFault | undefined> {
  if (!isUtf8(bytes)) return "invalid";
  const walk = new Walk(bytes, bounds);
  for (let end = bytesPerTurn; end < bytes.length; end += bytesPerTurn) {
    const fault = walk.fault(end);
    if (fault) return fault;
    await nextTurn();
  }
  return walk.fault();
}

/** Where text is not JSON: the offset of the first byte of the wrong token, and what may be there instead. */
export function findJsonFault(bytes: Buffer): { at: number; expected: string } | undefined {
  const walk = new Walk(bytes, { maxDepth: maxSearchedDepth });
  return walk.fault() === "invalid" ? walk.place() : undefined;
}

/** After a value, a name or an opening bracket: what may come next. */
type Next = "value" | "value or end" | "name" | "name or end" | "colon" | "comma or end";

const expected: Readonly<Record<Next, string>> = {
  value: "a value",
  "value or end": 'a value or "]"',
  name: "a name in double quotes",
  "name or end": 'a name in double quotes or "}"',
  colon: '":"',
  "comma or end": "a comma or the end",
};

class Walk {
  readonly #bytes: Buffer;
  readonly #bounds: JsonBounds;
  /** one byte per open bracket */
  readonly #open: Uint8Array;
  #depth = 0;
  #values = 0;
  #at = 0;
  #next: Next = "value";
  /** first byte of the current token, and what was allowed there */
  #token = { at: 0, next: this.#next };

  constructor(bytes: Buffer, bounds: JsonBounds) {
    this.#bytes = bytes;
    this.#bounds = bounds;
    this.#open = new Uint8Array(bounds.maxDepth);
  }

  /** The first fault of the values that begin before `end`; by default also that the JSON is not complete. */
  fault(end = Infinity): JsonFault | undefined {
    const { maxDepth, maxValues = Infinity } = this.#bounds;
    while (this.#at < end) {
      this.#skipBlanks();
      this.#token = { at: this.#at, next: this.#next };
      const byte = this.#bytes[this.#at];
      if (byte === undefined) {
        return this.#depth === 0 && this.#next === "comma or end" ? undefined : "invalid";
      }
      if (!this.#take(byte)) return "invalid";
      if (this.#depth > maxDepth) return "too deep";
      if (this.#values > maxValues) return "too many values";
    }
    return undefined;
  }

  /** The token that fault() read last. */
  place(): { at: number; expected: string } {
    const { at, next } = this.#token;
    const isText = this.#bytes[at] === quote && next !== "colon" && next !== "comma or end";
    return { at, expected: isText ? "a complete string on one line" : expected[next] };
  }

  /** False if the byte cannot be next. */
  #take(byte: number): boolean {
    switch (this.#next) {
      case "colon":
        this.#next = "value";
        return this.#single(byte === colon);
      case "comma or end":
        if (byte === comma && this.#depth > 0) {
          this.#next = this.#open[this.#depth - 1] === openObject ? "name" : "value";
          return this.#single(true);
        }
        return this.#close(byte);
      case "name or end":
        if (byte === closeObject) return this.#close(byte);
        return this.#name(byte);
      case "name":
        return this.#name(byte);
      case "value or end":
        return byte === closeArray ? this.#close(byte) : this.#value(byte);
      case "value":
        return this.#value(byte);
    }
  }

  #single(isExpected: boolean): boolean {
    this.#at++;
    return isExpected;
  }

  #name(byte: number): boolean {
    this.#next = "colon";
    return byte === quote && this.#string();
  }

  #value(byte: number): boolean {
    this.#values++;
    if (byte === openArray || byte === openObject) {
      if (this.#depth < this.#open.length) this.#open[this.#depth] = byte;
      this.#depth++;
      this.#next = byte === openArray ? "value or end" : "name or end";
      return this.#single(true);
    }
    this.#next = "comma or end";
    if (byte === quote) return this.#string();
    const word = words.get(byte);
    return word ? this.#word(word) : this.#number();
  }

  #close(byte: number): boolean {
    if (this.#depth === 0) return false;
    this.#depth--;
    this.#next = "comma or end";
    return this.#single(byte === (this.#open[this.#depth] === openObject ? closeObject : closeArray));
  }

  #skipBlanks(): void {
    for (let byte = this.#bytes[this.#at]; byte !== undefined && blanks.has(byte);)
      byte = this.#bytes[++this.#at];
  }

  #string(): boolean {
    const bytes = this.#bytes;
    for (let at = this.#at + 1; ; at++) {
      const byte = bytes[at];
      if (byte === undefined || byte < 0x20) return false;
      if (byte === quote) {
        this.#at = at + 1;
        return true;
      }
      if (byte !== backslash) continue;
      const escaped = bytes[++at];
      if (escaped === code("u")) {
        for (const end = at + 4; at < end;) if (!isHexDigit(bytes[++at])) return false;
      } else if (escaped === undefined || !escapes.has(escaped)) return false;
    }
  }

  #word(word: Buffer): boolean {
    const end = this.#at + word.length;
    const isIt = this.#bytes.compare(word, 0, word.length, this.#at, Math.min(end, this.#bytes.length)) === 0;
    this.#at = end;
    return isIt;
  }

  #number(): boolean {
    if (this.#bytes[this.#at] === minus) this.#at++;
    const first = this.#at;
    const digits = this.#digits();
    if (digits === 0 || (digits > 1 && this.#bytes[first] === zero)) return false;
    if (this.#bytes[this.#at] === dot) {
      this.#at++;
      if (this.#digits() === 0) return false;
    }
    const exponent = this.#bytes[this.#at];
    if (exponent !== code("e") && exponent !== code("E")) return true;
    this.#at++;
    const sign = this.#bytes[this.#at];
    if (sign === plus || sign === minus) this.#at++;
    return this.#digits() > 0;
  }

  #digits(): number {
    const start = this.#at;
    for (let byte = this.#bytes[start]; byte !== undefined && byte >= zero && byte <= nine;)
      byte = this.#bytes[++this.#at];
    return this.#at - start;
  }
}

function isHexDigit(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  const lower = byte | 0x20;
  return (byte >= zero && byte <= nine) || (lower >= code("a") && lower <= code("f"));
}
