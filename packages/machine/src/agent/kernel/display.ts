/**
 * Results of an eval: the message `O` (docs/spec/kernel-protocol.md). Pure.
 *
 * JSON forms are checked and passed on as text. The check of a long one takes several turns of the event loop,
 * so that such a result is a promise.
 */
import { checkJson, checkJsonInTurns, JsonText } from "@forkd/base";
import { displayParts, type DisplayPart } from "@forkd/contract";
import { kernelBounds } from "../bounds.ts";
import { KernelGarbage } from "./garbage.ts";

type JsonPart = "json" | "data" | "chart" | "extra";
type TextPart = Exclude<DisplayPart, JsonPart>;

/** Text, or base64 of images and PDF; JSON forms as text of JSON. */
type DisplayForms = { [P in TextPart]?: string } & { [P in JsonPart]?: JsonText };

export interface KernelDisplay {
  /** the value of the last expression */
  readonly isMain: boolean;
  readonly forms: Readonly<DisplayForms>;
  /** forms that were left out or cut because of their size */
  readonly cut: readonly DisplayPart[];
}

/** A result whose long JSON forms are not checked yet. */
export type UncheckedDisplay = KernelDisplay & { readonly unchecked: ReadonlyMap<JsonPart, Buffer> };

const isMainFlag = 1;
const formHeaderBytes = 5;
/** O: flags, and a bit for each form that was cut */
const displayHeaderBytes = 3;
/** forms, each with its header */
export const displayMaxBytes =
  displayHeaderBytes + displayParts.length * formHeaderBytes + kernelBounds.displayBytes;
const jsonBounds = { maxDepth: kernelBounds.valueJsonDepth };
/** JSON up to this size is checked while the message is decoded. */
const longJsonBytes = 64 * 1024;

export function decodeDisplay(payload: Buffer): UncheckedDisplay {
  if (payload.length < displayHeaderBytes) throw new KernelGarbage("result that is cut");
  const forms: DisplayForms = {};
  const unchecked = new Map<JsonPart, Buffer>();
  const mask = payload.readUInt16LE(1);
  const cut = displayParts.filter((_, index) => (mask & (1 << index)) !== 0);
  const seen = new Set<DisplayPart>();
  for (let at = displayHeaderBytes; at < payload.length;) {
    if (at + formHeaderBytes > payload.length) throw new KernelGarbage("result that is cut");
    const part = displayParts[payload.readUInt8(at) - 1];
    const end = at + formHeaderBytes + payload.readUInt32LE(at + 1);
    if (part === undefined || seen.has(part)) throw new KernelGarbage("result with an unknown form");
    if (end > payload.length) throw new KernelGarbage("result that is cut");
    seen.add(part);
    const bytes = payload.subarray(at + formHeaderBytes, end);
    if (isJson(part)) addJson(part, bytes);
    else forms[part] = bytes.toString(isBinary(part) ? "base64" : "utf8");
    at = end;
  }
  return { isMain: (payload.readUInt8(0) & isMainFlag) !== 0, forms, cut, unchecked };

  function addJson(part: JsonPart, bytes: Buffer): void {
    if (part !== "json" && bytes[0] !== openObject)
      throw new KernelGarbage(`"${part}" that is not an object`);
    if (bytes.length > longJsonBytes) return void unchecked.set(part, Buffer.from(bytes));
    const text = jsonText(bytes, checkJson(bytes, jsonBounds));
    if (text) forms[part] = text;
    else if (!cut.includes(part)) cut.push(part);
  }
}

const openObject = 0x7b;

function isJson(part: DisplayPart): part is JsonPart {
  return part === "json" || part === "data" || part === "chart" || part === "extra";
}

function isBinary(part: TextPart): boolean {
  return part === "png" || part === "jpeg" || part === "pdf";
}

/** Undefined if it is too deep. */
function jsonText(bytes: Buffer, fault: ReturnType<typeof checkJson>): JsonText | undefined {
  if (fault === "invalid") throw new KernelGarbage("result with invalid JSON");
  return fault ? undefined : new JsonText(bytes.toString());
}

/** Rejects with KernelGarbage if a form is not valid JSON. */
export async function checkDisplay({ unchecked, ...display }: UncheckedDisplay): Promise<KernelDisplay> {
  const forms = { ...display.forms };
  const cut = [...display.cut];
  for (const [part, bytes] of unchecked) {
    const text = jsonText(bytes, await checkJsonInTurns(bytes, jsonBounds));
    if (text) forms[part] = text;
    else cut.push(part);
  }
  return { ...display, forms, cut };
}
