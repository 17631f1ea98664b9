/** Fetches a snapshot from a registry, or as an archive from a URL. */
import {
  mediaTypes,
  unpackArchive,
  unpackBlobs,
  type BlobSource,
  type PlacedSnapshot,
  type Unpacker,
} from "@forkd/archive";
import { advice, AppError, tagPattern, type PullRequest } from "@forkd/contract";
import {
  formatReference,
  parseManifest,
  readFileAt,
  shownUrl,
  type Reference,
  type Registries,
  type Repository,
  type StoredManifest,
} from "@forkd/registry";
import type { StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import { fetchRecipe } from "./fetch-recipe.ts";
import { openRegistries } from "./open-registries.ts";
import { checkPortable, checkSignatures, checkUnsigned } from "./pull-checks.ts";
import { targetOf } from "./target.ts";
import { Meter, type OnHubProgress } from "./transfer-progress.ts";
import type { TrustReport } from "./trust/check-trust.ts";

export type Pulled = {
  reference: string;
  digest: string;
  snapshots: { tag: string; existed: boolean }[];
  movedBytes: number;
  trust: TrustReport;
  /** it was built here from its recipe */
  rebuilt: boolean;
  snapshot: StoredSnapshot;
};
type PullContext = {
  signal: AbortSignal;
  onProgress: OnHubProgress;
  /** Called when it is known which snapshots there will be, before their pages are fetched; may refuse. */
  onPlaces: (snapshots: readonly PlacedSnapshot[]) => Promise<void>;
  /** Builds a snapshot from a recipe. */
  build: (request: { tag: string; recipe: string; force: boolean }) => Promise<StoredSnapshot>;
};
type PullRuntime = Pick<Runtime, "config" | "host" | "store" | "trust">;
type Fetched = { unpacker: Pick<Unpacker, "digest" | "snapshots">; stored: StoredSnapshot[] };

/** Reads at the same time, each of up to 16 MiB. */
const atOnce = 4;
const defaultTag = "latest";

export async function pullSnapshot(
  runtime: PullRuntime,
  request: PullRequest,
  context: PullContext,
): Promise<Pulled> {
  const { config } = runtime;
  const target = targetOf(request.reference, {
    hubRegistry: config.hub.registry,
    plainHttp: request.plain_http ?? false,
  });
  if (target.kind === "url") {
    using registries = openRegistries(config, undefined, request);
    return await fetchArchive(runtime, registries, { ...request, url: target.url }, context);
  }
  using registries = openRegistries(config, target.reference.registry, request);
  return await fetchBlobs(runtime, registries, { ...request, from: target.reference }, context);
}

/** The tag under which a pull stores the snapshot; undefined if only the archive knows. */
export function tagOf(
  { reference, tag }: Pick<PullRequest, "reference" | "tag">,
  hubRegistry: string | undefined,
): string | undefined {
  if (tag !== undefined || /^https?:\/\//i.test(reference)) return tag;
  const target = targetOf(reference, { hubRegistry, plainHttp: false });
  const name = target.kind === "registry" ? target.reference.repository.split("/").at(-1) : undefined;
  if (name !== undefined && tagPattern.test(name)) return name;
  throw new AppError("invalid_request", `Invalid request: tag: "${name}" cannot be the tag of a snapshot`, {
    remedy: advice("Give the snapshot a tag."),
  });
}

async function fetchBlobs(
  runtime: PullRuntime,
  registries: Registries,
  request: PullRequest & { from: Reference },
  context: PullContext,
): Promise<Pulled> {
  const { from } = request;
  const { signal, onProgress } = context;
  const repository = registries.repository(from);
  onProgress({ step: "check", message: `asking ${from.registry} for the manifest` });
  const manifest = await repository.manifest(from.digest ?? from.tag ?? defaultTag, signal);
  const name = formatReference(from.digest === undefined ? { ...from, tag: from.tag ?? defaultTag } : from);
  requireSnapshot(name, manifest);
  const signed = { name: `${from.registry}/${from.repository}`, digest: manifest.digest, request };
  const trust = await checkSignatures(runtime, repository, signed, context);
  const tag = tagOf(request, runtime.config.hub.registry) ?? "";
  const remote = { repository, manifest, name, tag, force: request.force };
  try {
    return { ...(await fetchPages(runtime, remote, context)), trust, rebuilt: false };
  } catch (error) {
    if (!request.rebuild || !(error instanceof AppError) || error.code !== "snapshot_incompatible")
      throw error;
    onProgress({ step: "build", message: error.message });
    return { ...(await rebuild(runtime, remote, context)), trust, rebuilt: true };
  }
}

/** What a pull from a registry is about. */
type Remote = { repository: Repository; manifest: StoredManifest; name: string; tag: string; force: boolean };

async function fetchPages(
  runtime: PullRuntime,
  { repository, manifest, name, tag, force }: Remote,
  { signal, onProgress, onPlaces }: PullContext,
): Promise<Omit<Pulled, "trust" | "rebuilt">> {
  using meter = new Meter(onProgress, { step: "fetch", message: `fetching ${name}` });
  let fetched: Unpacker | undefined;
  let moved = manifest.bytes.length;
  const source: BlobSource = {
    manifest: manifest.bytes,
    read: (blob, range) =>
      repository.readBlob(blob, { ...range, signal, onBytes: (bytes) => void (moved += bytes) }),
  };
  const stored = await explained(name, () =>
    unpackBlobs(runtime.store, source, {
      tag,
      replace: force,
      resumable: true,
      signal,
      atOnce,
      onProgress: ({ doneBytes, totalBytes }) => meter.reach(doneBytes, totalBytes),
      onOpen: (unpacker) => {
        checkPortable(runtime, name, unpacker);
        fetched = unpacker;
        return onPlaces(unpacker.snapshots);
      },
    }),
  );
  meter.end();
  if (!fetched) throw new Error("Cannot tell what was fetched");
  return { ...resultOf({ unpacker: fetched, stored }), reference: name, movedBytes: moved };
}

/** Builds from the recipe that the snapshot carries. */
async function rebuild(
  runtime: PullRuntime,
  { repository, manifest, name, tag, force }: Remote,
  { signal, build }: PullContext,
): Promise<Omit<Pulled, "trust" | "rebuilt">> {
  await using recipe = await fetchRecipe(runtime, repository, { manifest, name, signal });
  const snapshot = await build({ tag, recipe: recipe.dir, force });
  const movedBytes = manifest.bytes.length + recipe.movedBytes;
  return {
    reference: name,
    digest: manifest.digest,
    snapshots: [{ tag, existed: false }],
    movedBytes,
    snapshot,
  };
}

async function fetchArchive(
  runtime: PullRuntime,
  registries: Registries,
  request: PullRequest & { url: URL },
  context: PullContext,
): Promise<Pulled> {
  const { url, tag, force } = request;
  const { signal, onProgress, onPlaces } = context;
  const name = shownUrl(url);
  const trust = await checkUnsigned(runtime, { url: name, request }, context);
  using meter = new Meter(onProgress, { step: "fetch", message: `fetching ${name}` });
  const stream = readFileAt(registries, url, {
    signal,
    onBytes: meter.add,
    onLength: (bytes) => void (meter.totalBytes = bytes),
  });
  let fetched: Unpacker | undefined;
  const stored = await explained(name, () =>
    unpackArchive(runtime.store, stream, {
      tag,
      replace: force,
      signal,
      onOpen: (unpacker) => {
        checkPortable(runtime, name, unpacker);
        fetched = unpacker;
        return onPlaces(unpacker.snapshots);
      },
    }),
  );
  meter.end();
  if (!fetched) throw new Error("Cannot tell what was fetched");
  const result = resultOf({ unpacker: fetched, stored });
  return { ...result, reference: name, movedBytes: meter.doneBytes, trust, rebuilt: false };
}

function resultOf({ unpacker, stored }: Fetched): Pick<Pulled, "digest" | "snapshots" | "snapshot"> {
  const snapshot = stored.at(-1);
  if (!snapshot) throw new Error("Cannot tell what was fetched");
  const snapshots = unpacker.snapshots.map(({ tag, exists }) => ({ tag, existed: exists }));
  return { digest: unpacker.digest, snapshots, snapshot };
}

/** Something else of the registry, such as a container image, is refused before anything is fetched. */
function requireSnapshot(name: string, { bytes, mediaType }: StoredManifest): void {
  const parsed = parseManifest(bytes, mediaType);
  const type = parsed.kind === "manifest" ? parsed.manifest.artifactType : undefined;
  if (type === mediaTypes.artifact) return;
  const what = type === undefined ? "a container image" : `an artifact of the type "${type}"`;
  throw new AppError("invalid_archive", `Cannot pull ${name}: it is ${what}, not a snapshot`, {
    details: { reference: name },
  });
}

/** What the sender or the registry has damaged is not a fault of the request. */
async function explained<T>(name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "invalid_archive") throw error;
    throw new AppError("artifact_corrupt", `Cannot pull ${name}: ${error.message}`, {
      details: { ...error.details, reference: name },
      cause: error,
    });
  }
}
