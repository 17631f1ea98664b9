/**
 * Manifests that refer to another one, such as signatures. A registry without the API of OCI 1.1 keeps them in
 * an index whose tag is made from the digest, which its clients maintain.
 */
import { RegistryTrouble } from "./errors.ts";
import type { RegistryHost } from "./host.ts";
import { discard, readBounded } from "./http/body.ts";
import { withRetries, type RetryPolicy } from "./http/retry.ts";
import { maxManifestBytes, mediaTypes, parseManifest, type Descriptor } from "./manifest.ts";
import type { Place } from "./place.ts";

type Manifests = Place & {
  manifest(tag: string, signal?: AbortSignal): Promise<{ bytes: Uint8Array }>;
  putManifest(
    bytes: Uint8Array,
    mediaType: string,
    options: { tag?: string; signal?: AbortSignal | undefined },
  ): Promise<{ digest: string; hasSubject: boolean }>;
};
type Query = {
  readonly host: RegistryHost;
  readonly retries: RetryPolicy;
  readonly digest: string;
  readonly artifactType: string | undefined;
  readonly signal: AbortSignal | undefined;
};

export async function listReferrers(repository: Manifests, query: Query): Promise<Descriptor[]> {
  const found =
    (await fromApi(repository, query)) ?? (await fallbackIndex(repository, query.digest, query.signal));
  const { artifactType } = query;
  return artifactType === undefined ? found : found.filter((each) => each.artifactType === artifactType);
}

/** undefined if the registry does not have this API. */
async function fromApi(
  repository: Manifests,
  { host, retries, digest, signal }: Query,
): Promise<Descriptor[] | undefined> {
  const what = `Cannot list what refers to ${repository.registry}/${repository.name}@${digest}`;
  return await withRetries(retries, signal, async () => {
    const incoming = await host.request({
      method: "GET",
      target: `${repository.name}/referrers/${digest}`,
      headers: { accept: mediaTypes.index },
      scopes: repository.scopes(),
      accept: [200, 400, 404, 405, 501],
      what,
      signal,
    });
    if (incoming.status !== 200 || !/json/.test(incoming.headers["content-type"] ?? "")) {
      discard(incoming);
      return undefined;
    }
    return entriesOf(await readBounded(incoming, maxManifestBytes, what));
  });
}

async function fallbackIndex(
  repository: Manifests,
  digest: string,
  signal: AbortSignal | undefined,
): Promise<Descriptor[]> {
  try {
    return entriesOf((await repository.manifest(fallbackTag(digest), signal)).bytes);
  } catch (error) {
    if (error instanceof RegistryTrouble && error.code === "artifact_not_found") return [];
    throw error;
  }
}

/** Stores the manifest; for a registry that does not list it then, adds it to the index of its subject. */
export async function addReferrer(
  repository: Manifests,
  bytes: Uint8Array,
  mediaType: string,
  signal: AbortSignal | undefined,
): Promise<string> {
  const parsed = parseManifest(bytes, mediaType);
  const stored = await repository.putManifest(bytes, mediaType, { signal });
  if (parsed.kind !== "manifest" || parsed.manifest.subject === undefined || stored.hasSubject)
    return stored.digest;
  const { subject, config, artifactType = config.mediaType, annotations } = parsed.manifest;
  const entries = await fallbackIndex(repository, subject.digest, signal);
  if (entries.some(({ digest }) => digest === stored.digest)) return stored.digest;
  const entry = {
    mediaType,
    digest: stored.digest,
    size: bytes.length,
    artifactType,
    ...(annotations && { annotations }),
  };
  const index = { schemaVersion: 2, mediaType: mediaTypes.index, manifests: [...entries, entry] };
  await repository.putManifest(Buffer.from(JSON.stringify(index)), mediaTypes.index, {
    tag: fallbackTag(subject.digest),
    signal,
  });
  return stored.digest;
}

function entriesOf(bytes: Uint8Array): Descriptor[] {
  const parsed = parseManifest(bytes, mediaTypes.index);
  return parsed.kind === "index" ? parsed.index.manifests : [];
}

function fallbackTag(digest: string): string {
  return digest.replace(":", "-").slice(0, 71);
}
