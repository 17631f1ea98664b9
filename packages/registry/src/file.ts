/** Single files behind a URL, such as archives in an object store. */
import { advice, AppError, type Remedy } from "@forkd/contract";
import { unreachable } from "./errors.ts";
import { isLoopback } from "./http/address.ts";
import { discard, piecesOf } from "./http/body.ts";
import { isTransient, pause, withRetries } from "./http/retry.ts";
import type { TransferOptions } from "./place.ts";
import type { Registries } from "./registries.ts";

/** A store may check and move the whole file before it answers. */
const commitSilenceMs = 300_000;

/** The URL without its query, which may be a signature. */
export function shownUrl(url: URL): string {
  return `${url.origin}${url.pathname}`;
}

/** Throws for anything but https://, and http:// on this host. */
export function parseFileUrl(text: string, options: { plainHttp: boolean }): URL {
  if (!URL.canParse(text)) throw refused(text.replace(/\?.*/s, ""), "it is not a URL");
  const url = new URL(text);
  const isPlain = url.protocol === "http:";
  if (!isPlain && url.protocol !== "https:") throw refused(shownUrl(url), "it is not HTTP");
  if (isPlain && !isLoopback(url.hostname) && !options.plainHttp)
    throw refused(
      shownUrl(url),
      "it has no TLS",
      advice("Use https://, or allow plain HTTP for this request."),
    );
  if (url.username !== "" || url.password !== "") throw refused(shownUrl(url), "it contains a password");
  url.hash = "";
  return url;
}

function refused(url: string, why: string, remedy?: Remedy): AppError {
  return new AppError("invalid_request", `Cannot use the URL "${url}": ${why}`, {
    details: { field: "reference" },
    ...(remedy && { remedy }),
  });
}

/**
 * The bytes of a file. Continues after a broken connection if the server says that the file is still the same.
 * `onLength` is called once, if the server names the length.
 */
export async function* readFileAt(
  registries: Registries,
  url: URL,
  options: TransferOptions & { onLength?: (bytes: number) => void } = {},
): AsyncGenerator<Uint8Array> {
  const { signal } = options;
  const what = `Cannot fetch ${shownUrl(url)}`;
  const host = registries.site(url);
  let [done, attempt] = [0, 1];
  let length: number | undefined;
  let version: string | undefined;
  while (length === undefined || done < length) {
    const before = done;
    try {
      const isRest = done > 0;
      const incoming = await host.request({
        method: "GET",
        target: url,
        headers: isRest ? { range: `bytes=${done}-`, "if-range": version ?? "" } : {},
        accept: [isRest ? 206 : 200],
        what,
        signal,
      });
      if (!isRest) {
        const { etag, "content-length": announced } = incoming.headers;
        // A weak validator does not promise the same bytes.
        version = etag?.startsWith('"') ? etag : undefined;
        length = announced === undefined ? undefined : Number(announced);
        if (length !== undefined) options.onLength?.(length);
      }
      const limit = length === undefined ? Infinity : length - done;
      for await (const piece of piecesOf(incoming, { limit, what })) {
        done += piece.length;
        options.onBytes?.(piece.length);
        yield piece;
      }
      if (length === undefined) return;
      if (done < length) throw unreachable(what, `${host.name} closed the connection`);
    } catch (cause) {
      signal?.throwIfAborted();
      const error = cause instanceof AppError ? cause : unreachable(what, cause);
      if (done > before) attempt = 1;
      const canContinue = done === 0 || (version !== undefined && length !== undefined);
      if (!isTransient(error) || !canContinue || attempt >= registries.retries.attempts) throw error;
      await pause(registries.retries, { attempt: attempt++, error, signal });
    }
  }
}

/** Sends a file with PUT, as the owner of a presigned URL may. Each attempt sends it from its beginning. */
export async function writeFileAt(
  registries: Registries,
  url: URL,
  file: { readonly length: number; readonly open: () => AsyncIterable<Uint8Array> } & TransferOptions,
): Promise<void> {
  const { length, open, signal, onBytes } = file;
  const host = registries.site(url);
  let sent = 0;
  const count = (bytes: number): void => {
    sent += bytes;
    onBytes?.(bytes);
  };
  await withRetries(registries.retries, signal, async () => {
    if (sent > 0) onBytes?.(-sent);
    sent = 0;
    discard(
      await host.request({
        method: "PUT",
        target: url,
        body: () => ({ length, pieces: counted(open(), count) }),
        silenceMs: commitSilenceMs,
        what: `Cannot send to ${shownUrl(url)}`,
        signal,
      }),
    );
  });
}

async function* counted(
  pieces: AsyncIterable<Uint8Array>,
  count: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  for await (const piece of pieces) {
    yield piece;
    count(piece.length);
  }
}
