/** Bodies of requests. */
import type { IncomingMessage } from "node:http";
import { AppError } from "@forkd/contract";

/** Bytes of all bodies that are being read */
const maxReadingBytes = 256 * 1024 * 1024;
let reading = 0;
/** How long a body may take: this, and a second more for each 64 KiB that have arrived */
const usualPaceMs = 30_000;
const bytesPerMs = 64 * 1.024;
const lookEveryMs = 1000;

/**
 * The pieces of a body. A reader that stops early leaves the request open: the client reads its answer only
 * while the rest of the body is read and dropped.
 */
export async function* bodyPieces(incoming: IncomingMessage): AsyncGenerator<Buffer> {
  yield* incoming.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
}

/** Reads the whole body, which is a message and not content. Breaks the connection if it comes too slowly. */
export async function readBody(
  incoming: IncomingMessage,
  maxBytes: number,
  paceMs = usualPaceMs,
): Promise<Buffer> {
  const encoding = incoming.headers["content-encoding"] ?? "identity";
  if (encoding !== "identity")
    throw new AppError(
      "invalid_request",
      `Cannot read the request: its encoding "${encoding}" is not supported`,
    );
  const pieces: Buffer[] = [];
  let bytes = 0;
  const startedAt = performance.now();
  const look = () => {
    if (performance.now() - startedAt < paceMs + bytes / bytesPerMs) return;
    incoming.destroy(new AppError("invalid_request", "Cannot read the request: it did not come in time"));
  };
  const looking = setInterval(look, Math.min(paceMs, lookEveryMs));
  try {
    for await (const piece of bodyPieces(incoming)) {
      bytes += piece.length;
      reading += piece.length;
      if (bytes > maxBytes)
        throw new AppError("body_too_large", `Cannot read the request: it has more than ${maxBytes} bytes`, {
          details: { limit: maxBytes },
        });
      if (reading > maxReadingBytes)
        throw new AppError("capacity_exhausted", "Cannot read the request: too many are being read", {
          details: { limit: maxReadingBytes },
          remedy: { action: "retry_later" },
        });
      pieces.push(piece);
    }
    return Buffer.concat(pieces, bytes);
  } finally {
    clearInterval(looking);
    reading -= bytes;
  }
}
