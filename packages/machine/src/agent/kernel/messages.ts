/**
 * Messages between the host and a language kernel (docs/spec/kernel-protocol.md). Pure.
 *
 * The kernel runs the user's code, which can write to the kernel's socket itself. Its messages are not
 * trusted: each type has its own bound (../bounds.ts), and decoders throw KernelGarbage.
 */
import { kernelBounds } from "../bounds.ts";
import { decodeDisplay, displayMaxBytes, type UncheckedDisplay } from "./display.ts";
import { KernelGarbage } from "./garbage.ts";
import { decodeValue, valueMaxBytes, type KernelValue } from "./value.ts";

export const maxMessageBytes = kernelBounds.messageBytes;
const headerBytes = 5;
const idBytes = 4;
const answerHeaderBytes = headerBytes + idBytes;
const ready = 0x59; // Y, the one message without an id
const displayed = 0x4f; // O, the one message that is not the last for its id

/** Longest payload by type. */
const maxPayload: Readonly<Record<string, number>> = {
  Y: kernelBounds.readyBytes,
  V: idBytes + valueMaxBytes,
  O: idBytes + displayMaxBytes,
  // A longer one is dropped, because honest kernels have no limit for the number of contexts.
  A: kernelBounds.messageBytes,
  Z: kernelBounds.cannotBytes,
};

export type KernelMessage =
  | { readonly type: "Y"; readonly text: string }
  | { readonly type: "V"; readonly id: number; readonly value: KernelValue }
  | { readonly type: "A"; readonly id: number; readonly bytes: Buffer }
  | { readonly type: "Z"; readonly id: number; readonly text: string }
  /** Not an answer: a result of the eval `id`, which has not ended. */
  | { readonly type: "O"; readonly id: number; readonly display: UncheckedDisplay; readonly bytes: number }
  /** The answer was not kept: it was too large, or there was no room for it. */
  | {
      readonly type: "dropped";
      readonly id: number;
      readonly why: "size" | "room";
      readonly isDisplay: boolean;
    };

/** Of a kernel by the text of its ready message. Before 3, the text does not name it. */
export function protocolOf(version: string): number {
  return Number(/; protocol=(\d{1,3})(?:;|$)/.exec(version)?.[1] ?? 2);
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

export function encodeEval(
  id: number,
  context: string,
  code: string,
  env: Readonly<Record<string, string>> = {},
): Buffer {
  const name = short(Buffer.from(context));
  const variables = entries(env);
  if (variables.length === 0) return encode("E", id, name, Buffer.from(code));
  return encode("X", id, name, u32(variables.length), variables, Buffer.from(code));
}

/** `replace`: the context may exist, and keeps its directory and variables. */
export function encodeNewContext(
  id: number,
  context: string,
  { replace, cwd, env }: { replace: boolean; cwd: string; env: Readonly<Record<string, string>> },
): Buffer {
  const flags = Buffer.from([replace ? 1 : 0]);
  return encode("N", id, flags, short(Buffer.from(context)), short(Buffer.from(cwd)), entries(env));
}

/** `rehearsal`: what the kernel runs for each `P`; empty for its own. */
export function encodeWarmed(id: number, rehearsal: string): Buffer {
  return encode("W", id, Buffer.from(rehearsal));
}

export function encodeRehearse(id: number, env: Readonly<Record<string, string>>): Buffer {
  return encode("P", id, entries(env));
}

function entries(env: Readonly<Record<string, string>>): Buffer {
  return Buffer.from(
    Object.entries(env)
      .map(([name, value]) => `${name}=${value}\0`)
      .join(""),
  );
}

export function encodeKernelAfterFork(
  id: number,
  entropy: Uint8Array,
  env: Readonly<Record<string, string>>,
): Buffer {
  return encode("R", id, short(entropy), entries(env));
}

export function encodeContexts(id: number): Buffer {
  return encode("C", id);
}

export function encodeDropContext(id: number, context: string): Buffer {
  return encode("D", id, short(Buffer.from(context)));
}

/** Asks whether so many more bytes of the answer to the message `id`, or of a result of it, may be kept. */
export type Room = (id: number, bytes: number, isDisplay: boolean) => boolean;

/**
 * Turns pieces of the control stream into messages. Buffers at most the received part of one message, as far
 * as there is room for it.
 */
export class KernelMessageParser {
  readonly #room: Room;
  #buffer = Buffer.alloc(0);
  #fill = 0;
  /** why only the first nine bytes of the current message are kept */
  #drop: "size" | "room" | undefined;

  constructor(room: Room = () => true) {
    this.#room = room;
  }

  /** Received bytes of an incomplete message. */
  get pendingBytes(): number {
    return this.#fill;
  }

  /** The id and missing bytes of an incomplete answer; undefined until its first nine bytes have arrived. */
  get cutAnswer():
    { readonly id: number; readonly missingBytes: number; readonly isDisplay: boolean } | undefined {
    if (this.#fill < answerHeaderBytes || this.#buffer[0] === ready) return undefined;
    const missingBytes = headerBytes + this.#buffer.readUInt32LE(1) - this.#fill;
    return {
      id: this.#buffer.readUInt32LE(headerBytes),
      missingBytes,
      isDisplay: this.#buffer[0] === displayed,
    };
  }

  *push(piece: Buffer): Generator<KernelMessage> {
    while (piece.length > 0) {
      const wanted = this.#wanted();
      const taken = piece.subarray(0, wanted - this.#fill);
      this.#append(taken, wanted);
      piece = piece.subarray(taken.length);
      if (this.#fill === headerBytes) this.#checkHeader();
      if (this.#fill < headerBytes || this.#fill < headerBytes + this.#buffer.readUInt32LE(1)) continue;
      const [message, drop] = [this.#buffer, this.#drop];
      this.#buffer = Buffer.alloc(0);
      this.#fill = 0;
      this.#drop = undefined;
      yield drop ? dropped(message, drop) : decode(message);
    }
  }

  /** Bytes of the message up to the next decision: its header, its id, its end. */
  #wanted(): number {
    if (this.#fill < headerBytes) return headerBytes;
    const end = headerBytes + this.#buffer.readUInt32LE(1);
    return this.#fill < answerHeaderBytes ? Math.min(answerHeaderBytes, end) : end;
  }

  #checkHeader(): void {
    const type = String.fromCharCode(this.#buffer.readUInt8(0));
    const length = this.#buffer.readUInt32LE(1);
    const limit = Object.hasOwn(maxPayload, type) ? maxPayload[type] : undefined;
    if (limit === undefined) throw new KernelGarbage("message of unknown type");
    if (length > limit) throw new KernelGarbage(`"${type}" of ${length} bytes`);
    if (type !== "Y" && length < idBytes) throw new KernelGarbage(`"${type}" without an id`);
    if (type === "A" && length > idBytes + kernelBounds.doneBytes) this.#drop = "size";
  }

  /** Grows by doubling, so that memory use follows the received bytes and not the claimed length. */
  #append(bytes: Buffer, wanted: number): void {
    const needed = this.#fill + bytes.length;
    if (needed > this.#buffer.length && !(this.#drop && this.#fill >= answerHeaderBytes)) {
      const size = Math.min(wanted, Math.max(needed, this.#buffer.length * 2));
      if (this.#hasRoom(size)) {
        const larger = Buffer.allocUnsafe(size);
        this.#buffer.copy(larger, 0, 0, this.#fill);
        this.#buffer = larger;
      } else {
        this.#drop = "room";
        this.#buffer = Buffer.from(this.#buffer.subarray(0, answerHeaderBytes));
      }
    }
    if (!this.#drop || this.#fill < answerHeaderBytes) bytes.copy(this.#buffer, this.#fill);
    this.#fill = needed;
  }

  #hasRoom(size: number): boolean {
    if (this.#fill < answerHeaderBytes || this.#buffer[0] === ready) return true;
    const id = this.#buffer.readUInt32LE(headerBytes);
    return this.#room(id, size - this.#buffer.length, this.#buffer[0] === displayed);
  }
}

function dropped(message: Buffer, why: "size" | "room"): KernelMessage {
  return { type: "dropped", id: message.readUInt32LE(headerBytes), why, isDisplay: message[0] === displayed };
}

/** `message` has a checked header. */
function decode(message: Buffer): KernelMessage {
  const type = String.fromCharCode(message.readUInt8(0));
  const payload = message.subarray(headerBytes);
  if (type === "Y") return { type, text: payload.toString("utf8", 0, kernelBounds.readyTextBytes) };
  const id = payload.readUInt32LE(0);
  const rest = payload.subarray(idBytes);
  if (type === "V") return { type, id, value: decodeValue(rest) };
  if (type === "A") return { type, id, bytes: rest };
  if (type === "O") return { type, id, display: decodeDisplay(rest), bytes: rest.length };
  return { type: "Z", id, text: rest.toString("utf8", 0, kernelBounds.cannotTextBytes) };
}
