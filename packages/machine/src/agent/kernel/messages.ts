/**
 * Messages between the host and a language kernel (docs/spec/kernel-protocol.md). Pure.
 *
 * The kernel runs the user's code, which can write to the kernel's socket itself. Its messages are not
 * trusted: each type has its own bound (../bounds.ts), and decoders throw KernelGarbage.
 */
import { checkJson, checkJsonInTurns, JsonText } from "@forkd/base";
import { contextNamePattern } from "@forkd/contract";
import { kernelBounds } from "../bounds.ts";

export const maxMessageBytes = kernelBounds.messageBytes;
const headerBytes = 5;
const idBytes = 4;
const answerHeaderBytes = headerBytes + idBytes;
/** V: status and the lengths of text and JSON */
const valueHeaderBytes = 9;
/** V: flags beside the status */
const textCut = 0x10;
const jsonCut = 0x20;
const { valueWholeBytes: wholeBytes } = kernelBounds;
const jsonBounds = { maxDepth: kernelBounds.valueJsonDepth };
/** JSON up to this size is checked while the message is decoded. */
const longJsonBytes = 64 * 1024;
const ready = 0x59; // Y, the one message without an id

/** Longest payload by type. */
const maxPayload: Readonly<Record<string, number>> = {
  Y: kernelBounds.readyBytes,
  V: idBytes + valueHeaderBytes + kernelBounds.valueTextBytes + kernelBounds.valueJsonBytes + wholeBytes,
  // A longer one is dropped, because honest kernels have no limit for the number of contexts.
  A: kernelBounds.messageBytes,
  Z: kernelBounds.cannotBytes,
};

/** The kernel sent bytes that are not a valid message. */
export class KernelGarbage extends Error {
  override readonly name = "KernelGarbage";
}

export type KernelMessage =
  | { readonly type: "Y"; readonly text: string }
  | { readonly type: "V"; readonly id: number; readonly value: KernelValue }
  | { readonly type: "A"; readonly id: number; readonly bytes: Buffer }
  | { readonly type: "Z"; readonly id: number; readonly text: string }
  /** The answer was not kept: it was too large, or there was no room for it. */
  | { readonly type: "dropped"; readonly id: number; readonly why: "size" | "room" };

const valueStatus = ["value", "none", "error", "interrupted"] as const;

export interface KernelValue {
  readonly status: (typeof valueStatus)[number];
  /** printed form, or the traceback */
  readonly text: string;
  /** length of the whole text, if it was cut; 0 if it is not known */
  readonly wholeTextBytes?: number;
  /** undefined if the value has no JSON form, or `isJsonCut` */
  readonly json?: JsonText;
  /** The JSON form was left out, or the message of the exception cut, because of its size. */
  readonly isJsonCut?: true;
  /** a long JSON form instead of `json`, for longJson() */
  readonly uncheckedJson?: Buffer;
  /** the exception, if `status` is error or interrupted and the kernel described it */
  readonly error?: { readonly name: string; readonly value: string };
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

/** Asks whether so many more bytes of the answer to the message `id` may be kept. */
export type Room = (id: number, bytes: number) => boolean;

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
  get cutAnswer(): { readonly id: number; readonly missingBytes: number } | undefined {
    if (this.#fill < answerHeaderBytes || this.#buffer[0] === ready) return undefined;
    const missingBytes = headerBytes + this.#buffer.readUInt32LE(1) - this.#fill;
    return { id: this.#buffer.readUInt32LE(headerBytes), missingBytes };
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
      yield drop ? { type: "dropped", id: message.readUInt32LE(headerBytes), why: drop } : decode(message);
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
    return this.#room(this.#buffer.readUInt32LE(headerBytes), size - this.#buffer.length);
  }
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
  return { type: "Z", id, text: rest.toString("utf8", 0, kernelBounds.cannotTextBytes) };
}

function decodeValue(payload: Buffer): KernelValue {
  const flags = payload[0] ?? -1;
  const status = valueStatus[flags & ~(textCut | jsonCut)];
  if (status === undefined) throw new KernelGarbage("value without a known status");
  const text = longText(payload, 1, kernelBounds.valueTextBytes);
  const json = longText(payload, 5 + text.length, kernelBounds.valueJsonBytes);
  const end = valueHeaderBytes + text.length + json.length;
  const isTextCut = (flags & textCut) !== 0;
  if (payload.length !== end + (isTextCut ? wholeBytes : 0))
    throw new KernelGarbage("value with bytes left over");
  const form = status === "value" || status === "none" ? jsonOf(json) : errorOf(json);
  return {
    status,
    text: text.toString(),
    ...(isTextCut
      ? { wholeTextBytes: wholeLength(payload.readBigUInt64LE(end), text.length) }
      : looksCut(text) && { wholeTextBytes: 0 }),
    ...form,
    ...((flags & jsonCut) !== 0 && { isJsonCut: true }),
  };
}

/** Only shown, so a number that cannot be right is as good as none. */
function wholeLength(claimed: bigint, kept: number): number {
  return claimed > BigInt(kept) && claimed <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(claimed) : 0;
}

/** A kernel of an older snapshot has no flags; its cut text has nearly the largest length and ends in `…`. */
function looksCut(text: Buffer): boolean {
  return text.length > kernelBounds.valueTextBytes - 8 && text.subarray(-3).equals(ellipsis);
}

const ellipsis = Buffer.from("…");

function longText(payload: Buffer, at: number, limit: number): Buffer {
  if (at + 4 > payload.length) throw new KernelGarbage("value is cut");
  const length = payload.readUInt32LE(at);
  if (length > payload.length - at - 4) throw new KernelGarbage("value is cut");
  if (length > limit) throw new KernelGarbage(`value with a text of ${length} bytes`);
  return payload.subarray(at + 4, at + 4 + length);
}

/** Checked, not parsed: the host passes it on as text. */
function jsonOf(bytes: Buffer): Pick<KernelValue, "json" | "uncheckedJson" | "isJsonCut"> {
  if (bytes.length === 0) return {};
  if (bytes.length > longJsonBytes) return { uncheckedJson: bytes };
  return textOf(bytes, checkJson(bytes, jsonBounds));
}

/** Checks JSON that is too long for one turn of the event loop. Rejects with KernelGarbage if it is invalid. */
export async function longJson(bytes: Buffer): Promise<Pick<KernelValue, "json" | "isJsonCut">> {
  return textOf(bytes, await checkJsonInTurns(bytes, jsonBounds));
}

function textOf(bytes: Buffer, fault: ReturnType<typeof checkJson>): Pick<KernelValue, "json" | "isJsonCut"> {
  if (fault === "invalid") throw new KernelGarbage("value with invalid JSON");
  return fault ? { isJsonCut: true } : { json: new JsonText(bytes.toString()) };
}

/** The traceback also names the exception, so a description beyond the bounds is not needed. */
function errorOf(bytes: Buffer): Pick<KernelValue, "error"> {
  if (bytes.length > kernelBounds.errorJsonBytes) return {};
  const bounds = { maxDepth: kernelBounds.errorJsonDepth, maxValues: kernelBounds.errorJsonValues };
  const fault = bytes.length === 0 ? undefined : checkJson(bytes, bounds);
  if (fault === "invalid") throw new KernelGarbage("error with invalid JSON");
  if (fault) return {};
  const parsed: unknown = bytes.length === 0 ? {} : JSON.parse(bytes.toString());
  const { name, value } = Object(parsed) as { name?: unknown; value?: unknown };
  return {
    error: {
      name: typeof name === "string" ? wellFormed(name) : "Error",
      value: typeof value === "string" ? wellFormed(value) : "",
    },
  };
}

/** Replaces lone surrogates, which JSON can contain and UTF-8 cannot. */
function wellFormed(text: string): string {
  return Buffer.from(text).toString();
}

/**
 * The names in the answer to `C`, each followed by NUL; undefined if there are too many. Stops at the first
 * name that is not one, so that the cost does not follow the size of the answer.
 */
export function decodeNames(bytes: Buffer): string[] | undefined {
  const names: string[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(0, at);
    if (end < 0) throw new KernelGarbage("names without an end");
    const name = bytes.toString("latin1", at, Math.min(end, at + 65));
    if (!contextNamePattern.test(name)) throw new KernelGarbage("name that no context can have");
    if (names.length >= kernelBounds.contexts) return undefined;
    names.push(name);
    at = end + 1;
  }
  return names;
}
