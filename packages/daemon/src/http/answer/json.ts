/** One value → a JSON answer. */
import type { ServerResponse } from "node:http";
import { nextTurn, stringifyJson } from "@forkd/base";
import { advice } from "@forkd/contract";
import { ByteBudget } from "../body/byte-budget.ts";

/** Entries of a list that one turn of the event loop encodes */
const entriesPerTurn = 1000;

export async function sendJson(outgoing: ServerResponse, status: number, value: unknown): Promise<void> {
  if (status === 204) outgoing.writeHead(status).end();
  else if (Array.isArray(value) && value.length > entriesPerTurn) await sendList(outgoing, status, value);
  else sendText(outgoing, stringifyJson(value), { status });
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

/** Encodes a long list in several turns and counts its bytes as they are made. */
async function sendList(
  outgoing: ServerResponse,
  status: number,
  entries: readonly unknown[],
): Promise<void> {
  const hold = unread.during(outgoing);
  const pieces: Buffer[] = [];
  for (let at = 0; at < entries.length; at += entriesPerTurn) {
    const text = stringifyJson(entries.slice(at, at + entriesPerTurn));
    const piece = Buffer.from(`${at === 0 ? "[" : ","}${text.slice(1, -1)}`);
    hold(piece.length);
    pieces.push(piece);
    await nextTurn();
    if (outgoing.destroyed) return;
  }
  pieces.push(Buffer.from("]"));
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  outgoing.writeHead(status, { "content-type": "application/json", "content-length": length });
  for (const piece of pieces) outgoing.write(piece);
  outgoing.end();
}
