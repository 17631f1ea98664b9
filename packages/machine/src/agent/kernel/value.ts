/**
 * The outcome of an eval: the message `V` (docs/spec/kernel-protocol.md). Pure.
 *
 * The JSON of a value is checked and passed on as text; only that of an error is parsed.
 */
import { checkJson, checkJsonInTurns, JsonText } from "@forkd/base";
import { kernelBounds } from "../bounds.ts";
import { KernelGarbage } from "./garbage.ts";

/** V: status and the lengths of text and JSON */
const valueHeaderBytes = 9;
/** V: flags beside the status */
const textCut = 0x10;
const jsonCut = 0x20;
const hasCount = 0x40;
const hasDropped = 0x80;
const valueFlags = textCut | jsonCut | hasCount | hasDropped;
const { valueWholeBytes: wholeBytes } = kernelBounds;
const jsonBounds = { maxDepth: kernelBounds.valueJsonDepth };
/** JSON up to this size is checked while the message is decoded. */
const longJsonBytes = 64 * 1024;
/** V without its id */
export const valueMaxBytes =
  valueHeaderBytes +
  kernelBounds.valueTextBytes +
  kernelBounds.valueJsonBytes +
  wholeBytes +
  kernelBounds.valueCountBytes;

/** The code of the user that an exception passed through. */
interface ErrorFrame {
  readonly file: string;
  readonly line: number;
  readonly function: string;
  readonly text: string;
}

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
  readonly error?: { readonly name: string; readonly value: string; readonly frames: readonly ErrorFrame[] };
  /** number of the eval in its context */
  readonly executionCount?: number;
  /** results that the kernel left out */
  readonly droppedResults?: number;
}

export function decodeValue(payload: Buffer): KernelValue {
  const flags = payload[0] ?? -1;
  const status = valueStatus[flags & ~valueFlags];
  if (status === undefined) throw new KernelGarbage("value without a known status");
  const text = longText(payload, 1, kernelBounds.valueTextBytes);
  const json = longText(payload, 5 + text.length, kernelBounds.valueJsonBytes);
  const end = valueHeaderBytes + text.length + json.length;
  const isTextCut = (flags & textCut) !== 0;
  const countAt = end + (isTextCut ? wholeBytes : 0);
  const droppedAt = countAt + (flags & hasCount ? 4 : 0);
  if (payload.length !== droppedAt + (flags & hasDropped ? 4 : 0))
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
    ...((flags & hasCount) !== 0 && { executionCount: payload.readUInt32LE(countAt) }),
    ...((flags & hasDropped) !== 0 && { droppedResults: payload.readUInt32LE(droppedAt) }),
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
  const { name, value, frames } = Object(parsed) as Record<"name" | "value" | "frames", unknown>;
  return { error: { name: textOr(name, "Error"), value: textOr(value, ""), frames: framesOf(frames) } };
}

function framesOf(frames: unknown): ErrorFrame[] {
  if (!Array.isArray(frames)) return [];
  return frames.slice(0, kernelBounds.errorFrames).map((frame: unknown) => {
    const { file, line, function: name, text } = Object(frame) as Record<keyof ErrorFrame, unknown>;
    return {
      file: textOr(file, ""),
      line: typeof line === "number" && Number.isSafeInteger(line) && line > 0 ? line : 0,
      function: textOr(name, ""),
      text: textOr(text, ""),
    };
  });
}

function textOr(value: unknown, otherwise: string): string {
  return typeof value === "string" ? wellFormed(value) : otherwise;
}

/** Replaces lone surrogates, which JSON can contain and UTF-8 cannot. */
function wellFormed(text: string): string {
  return Buffer.from(text).toString();
}
