/** Reads blobs: continues where a connection broke, and checks what arrives. */
import { broken, corrupt, RegistryTrouble, unreachable } from "../errors.ts";
import { hashFor, matches } from "../digest.ts";
import type { RegistryHost } from "../host.ts";
import { piecesOf } from "../http/body.ts";
import { isTransient, pause, type RetryPolicy } from "../http/retry.ts";
import type { Incoming } from "../http/transport.ts";
import type { Place, TransferOptions } from "../place.ts";

export type BlobRange = { readonly offset?: number | undefined; readonly length?: number | undefined };
type Read = TransferOptions &
  BlobRange & {
    readonly repository: Place;
    /** in the order in which they are asked */
    readonly hosts: readonly RegistryHost[];
    readonly retries: RetryPolicy;
    readonly blob: { readonly digest: string; readonly size: number };
    /** called for a mirror that does not answer */
    readonly onSilent: (host: RegistryHost) => void;
  };

export async function* readBlob(read: Read): AsyncGenerator<Uint8Array> {
  const { blob, repository, retries, signal, offset = 0, length = blob.size - offset } = read;
  const what = `Cannot read the blob ${blob.digest} of ${repository.registry}/${repository.name}`;
  if (offset < 0 || length < 0 || offset + length > blob.size)
    throw broken(what, `it has ${blob.size} bytes, not ${offset + length}`);
  const hash = offset === 0 && length === blob.size ? hashFor(blob.digest) : undefined;
  const hosts = [...read.hosts];
  let [done, attempt] = [0, 1];
  while (done < length) {
    const [host] = hosts;
    if (!host) throw broken(what, "there is no registry to ask");
    const before = done;
    try {
      for await (const piece of part(host, read, { from: offset + done, to: offset + length, what })) {
        done += piece.length;
        hash?.update(piece);
        read.onBytes?.(piece.length);
        yield piece;
      }
      if (done < length) throw unreachable(what, `${host.name} closed the connection`);
    } catch (error) {
      signal?.throwIfAborted();
      if (!(error instanceof RegistryTrouble)) throw error;
      // Progress shows that another attempt is worth while.
      if (done > before) attempt = 1;
      // Another host may have it at once, so only the last one is waited for.
      const isWorthwhile = hosts.length === 1 || done > before;
      if (isTransient(error) && isWorthwhile && attempt < retries.attempts) {
        await pause(retries, { attempt: attempt++, error, signal });
      } else {
        hosts.shift();
        attempt = 1;
        if (hosts.length === 0) throw error;
        if (error.code === "registry_unreachable") read.onSilent(host);
      }
    }
  }
  if (hash && !matches(blob.digest, hash)) {
    // A mirror may be the one that has damaged it.
    throw corrupt(what, `the bytes that ${hosts[0]?.name ?? "the registry"} sends have another digest`);
  }
}

async function* part(
  host: RegistryHost,
  { repository, blob, signal }: Read,
  { from, to, what }: { from: number; to: number; what: string },
): AsyncGenerator<Uint8Array> {
  const isWhole = from === 0 && to === blob.size;
  const incoming = await host.request({
    method: "GET",
    target: `${repository.name}/blobs/${blob.digest}`,
    headers: isWhole ? {} : { range: `bytes=${from}-${to - 1}` },
    scopes: repository.scopes(),
    accept: [200, 206],
    what,
    signal,
  });
  const start = checkedStart(incoming, { from, to, size: blob.size, what });
  let skip = from - start;
  let left = to - from;
  try {
    const limit = incoming.status === 200 ? blob.size : left;
    for await (const piece of piecesOf(incoming, { limit, what })) {
      const wanted = piece.subarray(Math.min(skip, piece.length)).subarray(0, left);
      skip -= Math.min(skip, piece.length);
      left -= wanted.length;
      if (wanted.length > 0) yield wanted;
      if (left === 0 && to < blob.size) return;
    }
  } catch (error) {
    signal?.throwIfAborted();
    throw error instanceof RegistryTrouble ? error : unreachable(what, error);
  } finally {
    incoming.body.destroy();
  }
}

/** Where the bytes of the answer begin. A registry that does not know ranges sends the whole blob. */
function checkedStart(
  { status, headers, body }: Incoming,
  { from, to, size, what }: { from: number; to: number; size: number; what: string },
): number {
  const length = headers["content-length"] === undefined ? undefined : Number(headers["content-length"]);
  const fail = (why: string): never => {
    body.destroy();
    throw broken(what, why);
  };
  if (status === 200) {
    if (length !== undefined && length !== size) fail(`the registry has ${length} bytes of it, not ${size}`);
    return 0;
  }
  const [, first, last, total] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(headers["content-range"] ?? "") ?? [];
  if (first === undefined || Number(first) !== from || Number(last) !== to - 1)
    fail(`the registry sends the range "${headers["content-range"] ?? ""}" for bytes ${from} to ${to - 1}`);
  if (total !== undefined && total !== "*" && Number(total) !== size)
    fail(`the registry has ${total} bytes of it, not ${size}`);
  if (length !== undefined && length !== to - from) fail(`the registry sends ${length} bytes of the range`);
  return from;
}
