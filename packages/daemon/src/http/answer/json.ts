/** One value → a JSON answer. */
import type { ServerResponse } from "node:http";
import { advice } from "@forkd/contract";
import { ByteBudget } from "../body/byte-budget.ts";

export function sendJson(outgoing: ServerResponse, status: number, value: unknown): void {
  if (status === 204) outgoing.writeHead(status).end();
  else sendText(outgoing, JSON.stringify(value), { status });
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
