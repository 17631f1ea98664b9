/** One value → a JSON answer. */
import type { ServerResponse } from "node:http";
import { drained, nextTurn, stringifyJson } from "@forkd/base";
import { advice } from "@forkd/contract";
import { ByteBudget } from "../body/byte-budget.ts";
import { isOnePiece, jsonPieces } from "./json-pieces.ts";

/** How slowly a client may read a large answer, which keeps data of a guest in memory until then */
const slowest = { ms: 60_000, bytesPerMs: 32 };

export async function sendJson(outgoing: ServerResponse, status: number, value: unknown): Promise<void> {
  if (status === 204) outgoing.writeHead(status).end();
  else if (isOnePiece(value)) sendText(outgoing, stringifyJson(value), { status });
  else await sendPieces(outgoing, status, value);
}

const largeBytes = 1024 * 1024;
/** Large answers that their clients have not read yet */
const unread = new ByteBudget({
  maxBytes: 256 * 1024 * 1024,
  which: "unread answers",
  message: (inUse, limit) => `Too many large answers wait to be read (${inUse} bytes; the limit is ${limit})`,
  remedy: advice("Read those answers first, or ask for a stream."),
});

export function sendText(
  outgoing: ServerResponse,
  text: string,
  { status, type = "application/json" }: { status: number; type?: string },
): void {
  const length = Buffer.byteLength(text);
  if (length > largeBytes) unread.during(outgoing)(length);
  outgoing.writeHead(status, { "content-type": type, "content-length": length });
  outgoing.end(text);
}

/**
 * Encodes the value in short turns. If its JSON is large, encodes it twice: for the length, and while the client
 * reads. The memory that this takes is that of the value, however long its JSON is.
 */
async function sendPieces(outgoing: ServerResponse, status: number, value: unknown): Promise<void> {
  let length = 0;
  let kept: string[] = [];
  for (const piece of jsonPieces(value)) {
    length += Buffer.byteLength(piece);
    if (length <= largeBytes) kept.push(piece);
    else kept = [];
    await nextTurn();
    if (outgoing.destroyed) return;
  }
  if (length <= largeBytes) return sendText(outgoing, kept.join(""), { status });
  unread.during(outgoing)(length);
  outgoing.writeHead(status, { "content-type": "application/json", "content-length": length });
  const cut = setTimeout(() => outgoing.destroy(), slowest.ms + length / slowest.bytesPerMs).unref();
  for (const piece of jsonPieces(value)) {
    await (outgoing.write(piece) ? nextTurn() : drained(outgoing));
    if (outgoing.destroyed) break;
  }
  clearTimeout(cut);
  outgoing.end();
}
