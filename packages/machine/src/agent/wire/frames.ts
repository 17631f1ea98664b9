/**
 * Frames of the agent protocol (docs/spec/agent-protocol.md): header, fields and incremental parser. Pure.
 *
 * The parser has two states. First it scans for the `HELLO_OK` with the nonce of this connection and skips
 * all bytes before it, which belong to an earlier connection. After that, every byte must be part of a valid
 * frame.
 */
import { frameBounds } from "../bounds.ts";
import { ProtocolError } from "../errors.ts";

export const frameType = {
  hello: 0x01,
  ping: 0x02,
  start: 0x10,
  input: 0x11,
  inputEof: 0x12,
  credit: 0x13,
  signal: 0x14,
  resize: 0x15,
  attach: 0x16,
  detach: 0x17,
  forget: 0x18,
  list: 0x19,
  afterFork: 0x20,
  sync: 0x21,
  powerOff: 0x22,
  clock: 0x23,
  network: 0x24,
  helloOk: 0x81,
  ok: 0x82,
  error: 0x83,
  clockOk: 0x85,
  forked: 0x86,
  started: 0x90,
  output: 0x91,
  outputEof: 0x92,
  inputCredit: 0x93,
  exit: 0x94,
  listing: 0x95,
  inputClosed: 0x96,
} as const;

export const headerBytes = 16;
export const maxPayloadBytes = frameBounds.payloadBytes;
export const nonceBytes = 16;

const magic = Buffer.from([0xf0, 0x4b]);
/** Version of the protocol, that is of the set of frames and their meaning. Recorded with a snapshot. */
export const protocolVersion = 4;
/** Version of the header layout. In every header. */
const frameVersion = 1;
const checkSeed = 0x464b4431;

export interface Frame {
  readonly type: number;
  readonly id: number;
  /** a view of the received bytes */
  readonly payload: Buffer;
}

/** One frame in one buffer; the payload is the concatenation of the parts. */
export function encodeFrame(type: number, id: number, ...parts: readonly Uint8Array[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  if (length > maxPayloadBytes) throw new RangeError(`Cannot encode a frame of ${length} bytes`);
  const frame = Buffer.allocUnsafe(headerBytes + length);
  magic.copy(frame, 0);
  frame[2] = frameVersion;
  frame[3] = type;
  frame.writeUInt32LE(id, 4);
  frame.writeUInt32LE(length, 8);
  frame.writeUInt32LE(headerCheck(frame, 0), 12);
  let offset = headerBytes;
  for (const part of parts) {
    frame.set(part, offset);
    offset += part.length;
  }
  return frame;
}

function headerCheck(bytes: Buffer, at: number): number {
  return (bytes.readUInt32LE(at) ^ bytes.readUInt32LE(at + 4) ^ bytes.readUInt32LE(at + 8) ^ checkSeed) >>> 0;
}

/** Why the 16 bytes at `at` are not a header; undefined if they are. */
function headerFault(bytes: Buffer, at: number): string | undefined {
  if (bytes[at] !== magic[0] || bytes[at + 1] !== magic[1]) return "no frame where one must start";
  if (bytes[at + 2] !== frameVersion) return `frame version ${bytes[at + 2]}`;
  if (bytes.readUInt32LE(at + 12) !== headerCheck(bytes, at)) return "wrong header check";
  const length = bytes.readUInt32LE(at + 8);
  return length > maxPayloadBytes ? `payload of ${length} bytes` : undefined;
}

/** A payload of fields: key → values in order. */
export type Fields = ReadonlyMap<number, readonly Buffer[]>;

export function encodeField(key: number, value: Uint8Array): Buffer {
  const field = Buffer.allocUnsafe(5 + value.length);
  field[0] = key;
  field.writeUInt32LE(value.length, 1);
  field.set(value, 5);
  return field;
}

export function decodeFields(payload: Buffer): Fields {
  const fields = new Map<number, Buffer[]>();
  let count = 0;
  for (let at = 0; at < payload.length;) {
    if (++count > frameBounds.fields) throw new ProtocolError(`more than ${frameBounds.fields} fields`);
    if (at + 5 > payload.length) throw new ProtocolError("field header is cut");
    const key = payload.readUInt8(at);
    const length = payload.readUInt32LE(at + 1);
    if (key === 0) throw new ProtocolError("field with key 0");
    if (length > payload.length - at - 5) throw new ProtocolError(`field ${key} ends past the payload`);
    const value = payload.subarray(at + 5, at + 5 + length);
    const values = fields.get(key);
    if (values) values.push(value);
    else fields.set(key, [value]);
    at += 5 + length;
  }
  return fields;
}

/**
 * Turns chunks of the stream into frames. A frame inside one chunk is a view of it. A frame that spans chunks
 * is copied once into a buffer of its size, so the work is linear and at most one frame is buffered.
 */
export class FrameParser {
  /** undefined once HELLO_OK was found */
  #nonce: Buffer | undefined;
  /** bytes that may be the start of HELLO_OK while scanning */
  #carry: Buffer = Buffer.alloc(0);
  readonly #header = Buffer.alloc(headerBytes);
  #headerFill = 0;
  #payload: Buffer | undefined;
  #payloadFill = 0;

  /** Without a nonce, frames start at the first byte of the stream. */
  constructor(nonce?: Buffer) {
    this.#nonce = nonce;
  }

  /** Yields the frames that `chunk` completes; the first frame of all is HELLO_OK. Throws ProtocolError. */
  *push(chunk: Buffer): Generator<Frame> {
    let at = 0;
    if (this.#nonce !== undefined) {
      const found = this.#scan(this.#nonce, chunk);
      if (!found) return;
      this.#nonce = undefined;
      yield found.frame;
      chunk = found.rest;
    }
    while (at < chunk.length) {
      if (this.#headerFill === 0 && chunk.length - at >= headerBytes) {
        const fault = headerFault(chunk, at);
        if (fault !== undefined) throw new ProtocolError(fault);
        const end = at + headerBytes + chunk.readUInt32LE(at + 8);
        if (end <= chunk.length) {
          yield view(chunk, at, end);
          at = end;
          continue;
        }
      }
      at = this.#fill(chunk, at);
      if (this.#payload?.length === this.#payloadFill) yield this.#take(this.#payload);
    }
  }

  /** Copies bytes to the frame that spans chunks; returns the position after them. */
  #fill(chunk: Buffer, at: number): number {
    if (this.#payload === undefined) {
      const copied = chunk.copy(this.#header, this.#headerFill, at);
      this.#headerFill += copied;
      at += copied;
      if (this.#headerFill < headerBytes) return at;
      const fault = headerFault(this.#header, 0);
      if (fault !== undefined) throw new ProtocolError(fault);
      this.#payload = Buffer.allocUnsafe(this.#header.readUInt32LE(8));
      this.#payloadFill = 0;
    }
    const copied = chunk.copy(this.#payload, this.#payloadFill, at);
    this.#payloadFill += copied;
    return at + copied;
  }

  #take(payload: Buffer): Frame {
    const frame = { type: this.#header.readUInt8(3), id: this.#header.readUInt32LE(4), payload };
    this.#payload = undefined;
    this.#headerFill = 0;
    return frame;
  }

  /**
   * Looks for HELLO_OK at every position. Old output may contain the start of a frame that is never
   * completed, so the search continues after an incomplete candidate.
   */
  #scan(nonce: Buffer, chunk: Buffer): { frame: Frame; rest: Buffer } | undefined {
    const bytes = this.#carry.length > 0 ? Buffer.concat([this.#carry, chunk]) : chunk;
    let keepFrom = bytes.length;
    for (let at = bytes.indexOf(magic); at !== -1; at = bytes.indexOf(magic, at + 1)) {
      if (at + headerBytes > bytes.length) {
        keepFrom = Math.min(keepFrom, at);
        break;
      }
      if (headerFault(bytes, at) !== undefined || bytes[at + 3] !== frameType.helloOk) continue;
      const length = bytes.readUInt32LE(at + 8);
      // The bound also limits the bytes that the scan keeps.
      if (length > frameBounds.helloOkBytes) continue;
      const end = at + headerBytes + length;
      if (end > bytes.length) {
        keepFrom = Math.min(keepFrom, at);
        continue;
      }
      const frame = view(bytes, at, end);
      if (carriesNonce(frame.payload, nonce)) {
        this.#carry = Buffer.alloc(0);
        return { frame, rest: bytes.subarray(end) };
      }
    }
    // The first magic byte alone may be the start of a header.
    if (keepFrom === bytes.length && bytes.at(-1) === magic[0]) keepFrom--;
    this.#carry = Buffer.from(bytes.subarray(keepFrom));
    return undefined;
  }
}

function view(bytes: Buffer, at: number, end: number): Frame {
  return {
    type: bytes.readUInt8(at + 3),
    id: bytes.readUInt32LE(at + 4),
    payload: bytes.subarray(at + headerBytes, end),
  };
}

/** Whether a candidate has our nonce; a malformed one does not. */
function carriesNonce(payload: Buffer, nonce: Buffer): boolean {
  try {
    return decodeFields(payload).get(1)?.[0]?.equals(nonce) === true;
  } catch (error) {
    if (error instanceof ProtocolError) return false;
    throw error;
  }
}
