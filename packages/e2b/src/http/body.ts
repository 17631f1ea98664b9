/** Bodies of requests. */
import type { IncomingMessage } from "node:http";
import { AppError } from "@forkd/contract";

/** Reads the whole body, which is a message and not content. */
export async function readBody(incoming: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const encoding = incoming.headers["content-encoding"] ?? "identity";
  if (encoding !== "identity")
    throw new AppError(
      "invalid_request",
      `Cannot read the request: its encoding "${encoding}" is not supported`,
    );
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of incoming as AsyncIterable<Buffer>) {
    bytes += piece.length;
    if (bytes > maxBytes)
      throw new AppError("body_too_large", `Cannot read the request: it has more than ${maxBytes} bytes`, {
        details: { limit: maxBytes },
      });
    pieces.push(piece);
  }
  return Buffer.concat(pieces, bytes);
}
