/** Reads answers of a registry: never more than announced, and never for ever. */
import type { Incoming } from "./transport.ts";
import { broken, quoted, unreachable } from "../errors.ts";

/** A connection that carries less than this in a window is closed. */
const slowest = { bytes: 64 * 1024, windowMs: 60_000 };

/** The pieces of a body. Fails after `limit` bytes, and if the registry sends too slowly. */
export async function* piecesOf(
  { body, headers }: Incoming,
  { limit, what }: { limit: number; what: string },
): AsyncGenerator<Uint8Array> {
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") {
    body.destroy();
    throw broken(what, `the registry sends it with the encoding "${quoted(encoding, 40)}"`);
  }
  const pace = new Pace();
  let total = 0;
  const pieces = (body as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await pace.wait(pieces.next());
      if (next.done) return;
      total += next.value.length;
      if (total > limit) throw broken(what, `the registry sends more than ${limit} bytes`);
      if (pace.isTooSlow(next.value.length))
        throw unreachable(
          what,
          `the registry sends less than ${slowest.bytes / 1024} KiB in ${slowest.windowMs / 1000} s`,
        );
      yield next.value;
    }
  } finally {
    body.destroy();
  }
}

/** Counts only the time in which this side waits: a slow reader is not the registry's fault. */
class Pace {
  #waitedMs = 0;
  #bytes = 0;

  async wait<T>(next: Promise<T>): Promise<T> {
    const since = performance.now();
    const value = await next;
    this.#waitedMs += performance.now() - since;
    return value;
  }

  isTooSlow(bytes: number): boolean {
    this.#bytes += bytes;
    if (this.#waitedMs < slowest.windowMs) return false;
    if (this.#bytes < slowest.bytes) return true;
    [this.#waitedMs, this.#bytes] = [0, 0];
    return false;
  }
}

export async function readBounded(incoming: Incoming, limit: number, what: string): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(incoming, { limit, what })) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** Ends an answer whose body does not matter; a short one leaves the connection for the next request. */
export function discard({ body }: Incoming): void {
  body.on("error", () => undefined);
  const length = Number(body.headers["content-length"] ?? "0");
  if (length > 65_536 || body.headers["transfer-encoding"] !== undefined) body.destroy();
  else body.resume();
}

export async function readJsonBody(incoming: Incoming, limit: number, what: string): Promise<unknown> {
  const bytes = await readBounded(incoming, limit, what);
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    const type = quoted(incoming.headers["content-type"] ?? "no type", 60);
    throw broken(what, `the answer of ${incoming.url.host} is not JSON (${type})`);
  }
}

const maxErrorBytes = 16 * 1024;

/** What a registry says about an error; undefined if it says nothing that can be read. */
export async function readErrorText(incoming: Incoming): Promise<string | undefined> {
  try {
    const bytes = await readBounded(incoming, maxErrorBytes, "error");
    const { errors, details, error } = JSON.parse(bytes.toString("utf8")) as Record<string, unknown>;
    const first: unknown = Array.isArray(errors) ? errors[0] : undefined;
    const { code, message } = (first ?? {}) as { code?: unknown; message?: unknown };
    const texts = [message, code, details, error].filter(
      (text): text is string => typeof text === "string" && text !== "",
    );
    return texts[0] === undefined ? undefined : quoted(texts[0]);
  } catch {
    // The status alone has to do: the body is too long, not JSON, or did not arrive.
    return undefined;
  }
}
