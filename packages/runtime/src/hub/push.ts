/** Sends a snapshot to a registry, or as an archive to a URL. */
import { packSnapshot, writeArchive, type PackedBlob, type PackedSnapshot } from "@forkd/archive";
import { mapPool } from "@forkd/base";
import {
  mediaTypes,
  shownUrl,
  writeFileAt,
  formatReference,
  type Reference,
  type Registries,
  type Repository,
} from "@forkd/registry";
import type { StoredSnapshot } from "@forkd/store";
import type { PushRequest } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import { extrasOf } from "./extras.ts";
import { openRegistries } from "./open-registries.ts";
import type { SentBlobs } from "./sent-blobs.ts";
import { sendTargetOf } from "./target.ts";
import { Meter, type OnHubProgress } from "./transfer-progress.ts";

export type Pushed = { reference: string; digest?: string; totalBytes: number; movedBytes: number };
type PushContext = { signal: AbortSignal; onProgress: OnHubProgress };

/** Blobs that are sent at the same time. */
const atOnce = 4;
const defaultTag = "latest";

export async function pushSnapshot(
  runtime: Pick<Runtime, "blobs" | "config" | "sentBlobs" | "store">,
  snapshot: StoredSnapshot,
  request: PushRequest,
  context: PushContext,
): Promise<Pushed> {
  const { config, store, blobs: cache, sentBlobs } = runtime;
  const { signal, onProgress } = context;
  const target = sendTargetOf(request.reference, {
    hubRegistry: config.hub.registry,
    plainHttp: request.plain_http ?? false,
  });
  const registry = target.kind === "registry" ? target.reference.registry : undefined;
  using registries = openRegistries(config, registry, request);
  // A registry that does not answer, or denies access, is better known before the work.
  if (target.kind === "registry") {
    const { tag = defaultTag } = target.reference;
    onProgress({ step: "check", message: `asking ${target.reference.registry} for access` });
    await registries.repository(target.reference, "pull,push").head(tag, signal);
  }
  using packing = new Meter(onProgress, { step: "pack", message: `packing ${snapshot.tag}` });
  await using packed = await packSnapshot(store, snapshot, {
    cache,
    extras: await extrasOf(snapshot, signal),
    level: request.level,
    signal,
    onProgress: ({ phase, doneBytes, totalBytes }) => {
      if (phase === "pack") packing.reach(doneBytes, totalBytes);
    },
  });
  if (target.kind === "url") return await sendArchive(registries, target.url, packed, context);
  return await sendBlobs(registries, target.reference, packed, { ...context, sentBlobs });
}

async function sendArchive(
  registries: Registries,
  url: URL,
  packed: PackedSnapshot,
  { signal, onProgress }: PushContext,
): Promise<Pushed> {
  const { bytes } = writeArchive(packed);
  using meter = new Meter(onProgress, {
    step: "send",
    message: `sending to ${shownUrl(url)}`,
    totalBytes: bytes,
  });
  const open = () => writeArchive(packed).stream;
  await writeFileAt(registries, url, { length: bytes, open, signal, onBytes: meter.add });
  meter.end();
  return { reference: shownUrl(url), digest: packed.manifest.digest, totalBytes: bytes, movedBytes: bytes };
}

async function sendBlobs(
  registries: Registries,
  given: Reference,
  packed: PackedSnapshot,
  { signal, onProgress, sentBlobs }: PushContext & { sentBlobs: SentBlobs },
): Promise<Pushed> {
  const { bytes, digest } = packed.manifest;
  const reference = { ...given, tag: given.tag ?? defaultTag };
  const repository = registries.repository(reference, "pull,push");
  const name = formatReference(reference);
  const finished = (movedBytes: number): Pushed => ({
    reference: name,
    digest,
    totalBytes: packed.packedBytes,
    movedBytes,
  });
  onProgress({ step: "check", message: `asking ${reference.registry} what it has` });
  // A registry keeps a manifest only with all its blobs.
  const isThere = (await repository.head(digest, signal)) !== undefined;
  const missing = isThere ? [] : await missingBlobs(repository, packed.blobs, { signal, sentBlobs });
  const totalBytes = missing.reduce((sum, { size }) => sum + size, 0);
  using meter = new Meter(onProgress, { step: "send", message: `sending to ${name}`, totalBytes });
  await inParallel(missing, signal, async (blob, ends) => {
    await repository.uploadBlob({ ...blob, open: () => blob.open() }, { signal: ends, onBytes: meter.add });
  });
  meter.end();
  const isTagged = isThere && (await repository.head(reference.tag, signal))?.digest === digest;
  if (!isTagged) await repository.putManifest(bytes, mediaTypes.manifest, { tag: reference.tag, signal });
  await sentBlobs.add(
    reference,
    packed.blobs.map((blob) => blob.digest),
  );
  return finished(meter.doneBytes + (isTagged ? 0 : bytes.length));
}

/** Blobs that the repository does not have, after those of other repositories were mounted. */
async function missingBlobs(
  repository: Repository,
  blobs: readonly PackedBlob[],
  { signal, sentBlobs }: { signal: AbortSignal; sentBlobs: SentBlobs },
): Promise<PackedBlob[]> {
  const missing: PackedBlob[] = [];
  await inParallel(blobs, signal, async (blob, ends) => {
    if (await repository.hasBlob(blob, ends)) return;
    const other = await sentBlobs.find(repository, blob.digest);
    if (other !== undefined && (await repository.mountBlob(blob.digest, other, ends))) return;
    missing.push(blob);
  });
  return missing;
}

/** The first failure stops the others, which are waited for. */
async function inParallel<T>(
  items: readonly T[],
  signal: AbortSignal,
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failed = new AbortController();
  const ends = AbortSignal.any([signal, failed.signal]);
  let first: { error: unknown } | undefined;
  await mapPool(items, atOnce, async (item) => {
    if (ends.aborted) return;
    try {
      await work(item, ends);
    } catch (error) {
      first ??= { error };
      failed.abort(error);
    }
  });
  signal.throwIfAborted();
  if (first) throw first.error;
}
