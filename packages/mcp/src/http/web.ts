/** Requests and answers of Node as those of the web platform, which the protocol library uses. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { once } from "node:events";
import { AppError } from "@forkd/contract/wire";

/** Bytes of a request: a file for write_file as base64, and its frame. */
const largestBody = 8 * 1024 * 1024;

export async function readBody(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > largestBody)
      throw new AppError("body_too_large", `The request has more than ${largestBody} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** `signal` aborts when the connection closes before the answer is complete. */
export function toRequest(
  incoming: IncomingMessage,
  { scheme, body, signal }: { scheme: string; body: string; signal: AbortSignal },
): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming.headers))
    for (const each of [value ?? []].flat()) headers.append(name, each);
  const method = incoming.method ?? "GET";
  return new Request(`${scheme}://${incoming.headers.host ?? "localhost"}${incoming.url ?? "/"}`, {
    method,
    headers,
    signal,
    ...(method === "POST" && { body }),
  });
}

/** Resolves when the answer is complete, or its client is gone. */
export async function sendResponse(response: Response, outgoing: ServerResponse): Promise<void> {
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null) {
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  const reader = response.body.getReader();
  const closed = new AbortController();
  const onClose = () => {
    closed.abort();
    reader.cancel().catch(() => undefined);
  };
  outgoing.once("close", onClose);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!outgoing.write(value)) await once(outgoing, "drain", { signal: closed.signal });
    }
    outgoing.end();
  } catch (error) {
    // The client is gone: nothing can be sent.
    if (!outgoing.destroyed) throw error;
  } finally {
    outgoing.off("close", onClose);
  }
}
