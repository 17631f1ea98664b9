/**
 * Sends blobs. A small one goes in one request; a large one in the two that every registry knows from Docker,
 * and it continues after a broken connection if the registry says how much it has.
 */
import { broken, RegistryTrouble, unreachable } from "../errors.ts";
import type { RegistryHost } from "../host.ts";
import { discard } from "../http/body.ts";
import { isTransient, pause, withRetries, type RetryPolicy } from "../http/retry.ts";
import type { Incoming } from "../http/transport.ts";
import type { Place, TransferOptions } from "../place.ts";

export type UploadSource = {
  readonly digest: string;
  readonly size: number;
  /** the bytes from the beginning; called again for each attempt */
  readonly open: () => AsyncIterable<Uint8Array>;
};
type Target = { readonly repository: Place; readonly host: RegistryHost; readonly retries: RetryPolicy };
type Upload = Target & TransferOptions & { readonly blob: UploadSource };

const smallBytes = 8 * 1024 * 1024;
/** A registry may check and move a whole blob before it answers. */
const commitSilenceMs = 300_000;

export async function mountBlob(
  target: Target & { digest: string; from: string; signal: AbortSignal | undefined },
): Promise<boolean> {
  const { repository, host, retries, digest, from, signal } = target;
  const query = new URLSearchParams({ mount: digest, from });
  const incoming = await withRetries(retries, signal, () =>
    host.request({
      method: "POST",
      target: `${repository.name}/blobs/uploads/?${query.toString()}`,
      headers: { "content-length": "0" },
      scopes: [...repository.scopes("pull,push"), `repository:${from}:pull`],
      what: `Cannot mount the blob ${digest} in ${repository.registry}/${repository.name}`,
      accept: [201, 202],
      signal,
    }),
  );
  discard(incoming);
  if (incoming.status === 201) return true;
  // The registry has begun an upload instead.
  await cancel(target, incoming);
  return false;
}

export async function uploadBlob(upload: Upload): Promise<void> {
  const { retries, signal, blob } = upload;
  let sent = 0;
  const count = (bytes: number): void => {
    sent += bytes;
    upload.onBytes?.(bytes);
  };
  await withRetries(retries, signal, async () => {
    // Bytes of a lost attempt do not count as moved.
    if (sent > 0) upload.onBytes?.(-sent);
    sent = 0;
    const begun = await begin(upload);
    if (begun === undefined) return;
    if (blob.size <= smallBytes) await sendWhole(upload, begun, count);
    else await sendStreamed(upload, begun, count);
  });
}

/** The address of a new upload; undefined if the registry has the blob already. */
async function begin(upload: Upload): Promise<URL | undefined> {
  const { repository, host, signal } = upload;
  const incoming = await host.request({
    method: "POST",
    target: `${repository.name}/blobs/uploads/`,
    headers: { "content-length": "0" },
    scopes: repository.scopes("pull,push"),
    accept: [201, 202],
    what: whatOf(upload),
    signal,
  });
  discard(incoming);
  return incoming.status === 201 ? undefined : locationOf(upload, incoming);
}

async function sendWhole(upload: Upload, location: URL, count: (bytes: number) => void): Promise<void> {
  await finish(upload, location, () => ({
    length: upload.blob.size,
    pieces: from(upload.blob, 0, count),
  }));
}

async function sendStreamed(upload: Upload, begun: URL, count: (bytes: number) => void): Promise<void> {
  const { blob, retries, signal } = upload;
  let [location, offset, sent, attempt] = [begun, 0, 0, 1];
  const counted = (bytes: number): void => {
    sent += bytes;
    count(bytes);
  };
  for (;;) {
    try {
      location = await patch(upload, { location, offset, count: counted });
      break;
    } catch (error) {
      if (!isTransient(error) || attempt >= retries.attempts) throw error;
      await pause(retries, { attempt: attempt++, error, signal });
      const reached = await statusOf(upload, location);
      // Without an answer to that, the upload starts again.
      if (!reached || reached.offset <= offset || reached.offset > blob.size) throw error;
      count(reached.offset - offset - sent);
      [location, offset, sent] = [reached.location, reached.offset, 0];
      if (offset === blob.size) break;
    }
  }
  await finish(upload, location);
}

async function patch(
  upload: Upload,
  { location, offset, count }: { location: URL; offset: number; count: (bytes: number) => void },
): Promise<URL> {
  const { repository, host, blob, signal } = upload;
  const incoming = await host.request({
    method: "PATCH",
    target: location,
    headers: {
      "content-type": "application/octet-stream",
      ...(offset > 0 && { "content-range": `${offset}-${blob.size - 1}` }),
    },
    body: () => ({ length: blob.size - offset, pieces: from(blob, offset, count) }),
    scopes: repository.scopes("pull,push"),
    accept: [201, 202, 204],
    silenceMs: commitSilenceMs,
    what: whatOf(upload),
    signal,
  });
  discard(incoming);
  return locationOf(upload, incoming);
}

async function finish(
  upload: Upload,
  location: URL,
  body?: () => { length: number; pieces: AsyncIterable<Uint8Array> },
): Promise<void> {
  const { repository, host, blob, signal } = upload;
  const url = new URL(location);
  // The address may have a query itself, which has to stay.
  url.searchParams.set("digest", blob.digest);
  const incoming = await host.request({
    method: "PUT",
    target: url,
    headers: body ? { "content-type": "application/octet-stream" } : { "content-length": "0" },
    body,
    scopes: repository.scopes("pull,push"),
    accept: [201, 204],
    silenceMs: commitSilenceMs,
    what: whatOf(upload),
    signal,
  });
  discard(incoming);
}

/** How much the registry has of an upload; undefined if it does not say. */
async function statusOf(
  upload: Upload,
  location: URL,
): Promise<{ location: URL; offset: number } | undefined> {
  const { repository, host, signal } = upload;
  try {
    const incoming = await host.request({
      method: "GET",
      target: location,
      scopes: repository.scopes("pull,push"),
      accept: [204],
      what: whatOf(upload),
      signal,
    });
    discard(incoming);
    const [, last] = /^(?:bytes=)?0-(\d+)$/.exec(String(incoming.headers["range"] ?? "")) ?? [];
    if (last === undefined) return undefined;
    return { location: locationOf(upload, incoming), offset: Number(last) + 1 };
  } catch (error) {
    if (error instanceof RegistryTrouble) return undefined;
    throw error;
  }
}

/** Best effort: registries remove uploads that are not finished. */
async function cancel(
  { repository, host, signal }: Target & { signal: AbortSignal | undefined },
  { headers, url }: Incoming,
): Promise<void> {
  if (headers.location === undefined) return;
  try {
    const target = host.resolve(headers.location, url);
    const scopes = repository.scopes("pull,push");
    discard(
      await host.request({ method: "DELETE", target, scopes, what: "Cannot cancel the upload", signal }),
    );
  } catch (error) {
    if (!(error instanceof RegistryTrouble)) throw error;
  }
}

function locationOf(upload: Upload, { headers, url }: Incoming): URL {
  if (headers.location === undefined)
    throw broken(whatOf(upload), "the registry does not say where to send it");
  return upload.host.resolve(headers.location, url);
}

function whatOf({ repository, blob }: Upload): string {
  return `Cannot send the blob ${blob.digest} to ${repository.registry}/${repository.name}`;
}

/** The bytes from an offset on. Fails if the source does not have as many as it says. */
async function* from(
  { open, size, digest }: UploadSource,
  offset: number,
  count: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const piece of open()) {
    const wanted = piece.subarray(Math.min(Math.max(offset - at, 0), piece.length));
    at += piece.length;
    if (at > size) throw unreachable(`The blob ${digest}`, `it has more than ${size} bytes`);
    if (wanted.length === 0) continue;
    yield wanted;
    count(wanted.length);
  }
  if (at < size) throw unreachable(`The blob ${digest}`, `it has ${at} bytes, not ${size}`);
}
