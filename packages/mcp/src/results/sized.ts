/** Output sized for a model: its head and its tail, with the number of bytes left out between them. Pure. */
import type { Collected } from "./collector.ts";
import { safeText } from "./safe-text.ts";

type Sized = {
  readonly text: string;
  /** Bytes of the output that `text` does not show. */
  readonly leftOut: number;
  /** Characters that were made visible or removed. */
  readonly replaced: number;
};

/** How far from the limit a line end may be to cut there. */
const lineSearch = 512;

/** `where` completes "N bytes are left out here": how to read them. */
export function sized(output: Collected, limit: number, where: string): Sized {
  if (output.total <= limit) {
    const { text, replaced } = safeText(Buffer.concat([output.head, output.tail]));
    return { text, replaced, leftOut: 0 };
  }
  // All of a short output is in the head; of a long one its end is in the tail.
  const end = output.tail.length > 0 || output.missing > 0 ? output.tail : output.head;
  const headBytes = Math.ceil(limit / 2);
  const first = cutEnd(output.head.subarray(0, headBytes));
  const last = cutStart(end.subarray(Math.max(0, end.length - (limit - headBytes))));
  const leftOut = output.total - first.length - last.length;
  const head = safeText(first);
  const tail = safeText(last);
  const gap = `[${leftOut} of ${output.total} bytes are left out here. ${where}]`;
  const text = [head.text.replace(/\n$/, ""), gap, tail.text].join("\n");
  return { text, leftOut, replaced: head.replaced + tail.replaced };
}

/** Cuts after the last line end, or else after the last whole character. */
function cutEnd(bytes: Uint8Array): Uint8Array {
  const line = bytes.lastIndexOf(0x0a);
  if (line >= 0 && line + 1 >= bytes.length - lineSearch) return bytes.subarray(0, line + 1);
  let end = bytes.length;
  while (end > bytes.length - 4 && end > 0 && isContinuation(bytes[end - 1])) end--;
  // The byte before the continuation bytes begins their character, which may be incomplete.
  return bytes.subarray(0, end > 0 && (bytes[end - 1] ?? 0) >= 0xc0 ? end - 1 : bytes.length);
}

/** Cuts before the first line, or else before the first whole character. */
function cutStart(bytes: Uint8Array): Uint8Array {
  const line = bytes.subarray(0, lineSearch).indexOf(0x0a);
  if (line >= 0 && line + 1 < bytes.length) return bytes.subarray(line + 1);
  let start = 0;
  while (start < 4 && start < bytes.length && isContinuation(bytes[start])) start++;
  return bytes.subarray(start < 4 ? start : 0);
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x80 && byte < 0xc0;
}
