/**
 * Messages between the host and a language kernel (docs/spec/kernel-protocol.md). Pure.
 *
 * The kernel runs the user's code, so its messages are not trusted: decoders throw KernelGarbage.
 */

export const maxMessageBytes = 16 * 1024 * 1024;
const headerBytes = 5;
const idBytes = 4;
const ready = 0x59; // Y, the one message without an id

/** The kernel sent bytes that are not a valid message. */
export class KernelGarbage extends Error {
  override readonly name = "KernelGarbage";
}

export type KernelMessage =
  | { readonly type: "Y"; readonly text: string }
  | { readonly type: "V"; readonly id: number; readonly value: KernelValue }
  | { readonly type: "A"; readonly id: number; readonly bytes: Buffer }
  | { readonly type: "Z"; readonly id: number; readonly text: string };

const valueStatus = ["value", "none", "error", "interrupted"] as const;

export interface KernelValue {
  readonly status: (typeof valueStatus)[number];
  /** printed form, or the traceback */
  readonly text: string;
  /** undefined if the value has no JSON form */
  readonly json: unknown;
}

function u32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function short(bytes: Uint8Array): Buffer {
  if (bytes.length > 0xffff) throw new RangeError(`Cannot encode ${bytes.length} bytes as a short text`);
  const length = Buffer.allocUnsafe(2);
  length.writeUInt16LE(bytes.length);
  return Buffer.concat([length, bytes]);
}

function encode(type: string, id: number, ...parts: readonly Uint8Array[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 4);
  if (length > maxMessageBytes) throw new RangeError(`Cannot send ${length} bytes to a kernel`);
  return Buffer.concat([Buffer.from(type), u32(length), u32(id), ...parts]);
}

export function encodeEval(id: number, context: string, code: string): Buffer {
  return encode("E", id, short(Buffer.from(context)), Buffer.from(code));
}

export function encodeKernelAfterFork(
  id: number,
  entropy: Uint8Array,
  env: Readonly<Record<string, string>>,
): Buffer {
  const entries = Object.entries(env).map(([name, value]) => Buffer.from(`${name}=${value}\0`));
  return encode("R", id, short(entropy), ...entries);
}

export function encodeContexts(id: number): Buffer {
  return encode("C", id);
}

export function encodeDropContext(id: number, context: string): Buffer {
  return encode("D", id, short(Buffer.from(context)));
}

/** Turns pieces of the control stream into messages. Buffers at most the received part of one message. */
export class KernelMessageParser {
  #buffer = Buffer.alloc(0);
  #fill = 0;

  /** Received bytes of an incomplete message. */
  get pendingBytes(): number {
    return this.#fill;
  }

  /** The id and missing bytes of an incomplete answer; undefined until its first nine bytes have arrived. */
  get cutAnswer(): { readonly id: number; readonly missingBytes: number } | undefined {
    if (this.#fill < headerBytes + idBytes || this.#buffer[0] === ready) return undefined;
    const missingBytes = headerBytes + this.#buffer.readUInt32LE(1) - this.#fill;
    return { id: this.#buffer.readUInt32LE(headerBytes), missingBytes };
  }

  *push(piece: Buffer): Generator<KernelMessage> {
    while (piece.length > 0) {
      const wanted = this.#fill < headerBytes ? headerBytes : headerBytes + this.#buffer.readUInt32LE(1);
      const taken = piece.subarray(0, wanted - this.#fill);
      this.#append(taken, wanted);
      piece = piece.subarray(taken.length);
      if (this.#fill < headerBytes) return;
      const length = this.#buffer.readUInt32LE(1);
      if (length > maxMessageBytes) throw new KernelGarbage(`message of ${length} bytes`);
      if (this.#fill < headerBytes + length) continue;
      const message = this.#buffer.subarray(0, this.#fill);
      this.#buffer = Buffer.alloc(0);
      this.#fill = 0;
      yield decode(message);
    }
  }

  /** Grows by doubling, so that memory use follows the received bytes and not the claimed length. */
  #append(bytes: Buffer, wanted: number): void {
    const needed = this.#fill + bytes.length;
    if (needed > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.min(wanted, Math.max(needed, this.#buffer.length * 2)));
      this.#buffer.copy(larger, 0, 0, this.#fill);
      this.#buffer = larger;
    }
    bytes.copy(this.#buffer, this.#fill);
    this.#fill = needed;
  }
}

function decode(message: Buffer): KernelMessage {
  const type = String.fromCharCode(message.readUInt8(0));
  const payload = message.subarray(headerBytes);
  if (type === "Y") return { type, text: payload.toString("utf8", 0, 256) };
  if (type !== "V" && type !== "A" && type !== "Z") throw new KernelGarbage("message of unknown type");
  if (payload.length < 4) throw new KernelGarbage(`"${type}" without an id`);
  const id = payload.readUInt32LE(0);
  const rest = payload.subarray(4);
  if (type === "V") return { type, id, value: decodeValue(rest) };
  return type === "A" ? { type, id, bytes: rest } : { type, id, text: rest.toString("utf8", 0, 4096) };
}

function decodeValue(payload: Buffer): KernelValue {
  const status = valueStatus[payload[0] ?? -1];
  if (status === undefined) throw new KernelGarbage("value without a known status");
  const text = longText(payload, 1);
  const json = longText(payload, 5 + text.length);
  if (payload.length !== 9 + text.length + json.length) throw new KernelGarbage("value with bytes left over");
  return { status, text: text.toString(), json: parseJson(json) };
}

function longText(payload: Buffer, at: number): Buffer {
  if (at + 4 > payload.length) throw new KernelGarbage("value is cut");
  const length = payload.readUInt32LE(at);
  if (length > payload.length - at - 4) throw new KernelGarbage("value is cut");
  return payload.subarray(at + 4, at + 4 + length);
}

function parseJson(bytes: Buffer): unknown {
  if (bytes.length === 0) return undefined;
  try {
    return JSON.parse(bytes.toString());
  } catch (error) {
    throw new KernelGarbage("value with invalid JSON", { cause: error });
  }
}

/** The names in the answer to `C`, each followed by NUL. */
export function decodeNames(bytes: Buffer): string[] {
  const names = bytes.toString().split("\0");
  if (names.pop() !== "") throw new KernelGarbage("names without an end");
  return names;
}
