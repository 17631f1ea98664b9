/** Lists the snapshots of a registry. */
import { mediaTypes } from "@forkd/archive";
import { mapPool } from "@forkd/base";
import { advice, AppError, type SearchRequest, type SearchResult } from "@forkd/contract";
import {
  formatReference,
  listRepositories,
  parseManifest,
  parseReference,
  parseRegistry,
  RegistryTrouble,
  type Registries,
} from "@forkd/registry";
import type { RuntimeConfig } from "../config.ts";
import { openRegistries } from "./open-registries.ts";

const maxRepositories = 1000;
const maxManifests = 1000;
const atOnce = 8;
/** Tags that are not versions of a snapshot: those under which registries without referrers keep signatures. */
const referrersTag = /^sha(256|512)-[0-9a-f]+/;

type Found = SearchResult["found"][number];

export async function searchRegistry(
  config: Pick<RuntimeConfig, "hub">,
  request: SearchRequest,
  signal: AbortSignal,
): Promise<SearchResult> {
  const place = request.registry ?? config.hub.registry;
  if (place === undefined) {
    throw new AppError("invalid_request", "Invalid request: registry: there is none", {
      remedy: advice("Name a registry, or set hub_registry."),
    });
  }
  const [host = "", ...path] = place.split("/");
  const [registry, prefix] = [parseRegistry(host), path.join("/").replace(/\/$/, "")];
  using registries = openRegistries(config, registry, request);
  const repositories = await repositoriesOf(registries, { registry, prefix, signal });
  const text = (request.text ?? "").toLowerCase();
  const wanted = repositories.filter((name) => name.toLowerCase().includes(text) || text === "");
  const named = wanted.length > 0 || text === "" ? wanted : repositories;
  const tags = await tagsOf(registries, { registry, repositories: named.slice(0, maxRepositories), signal });
  const matching = tags.filter(({ repository, tag }) => `${repository}:${tag}`.toLowerCase().includes(text));
  const found = await mapPool(matching.slice(0, maxManifests), atOnce, (each) =>
    describe(registries, { registry, ...each, signal }),
  );
  signal.throwIfAborted();
  return {
    registry: place,
    found: found
      .filter((each) => each !== undefined)
      .toSorted((a, b) => (a.reference < b.reference ? -1 : 1)),
    truncated: named.length > maxRepositories || matching.length > maxManifests,
  };
}

type Place = { registry: string; prefix: string; signal: AbortSignal };

/** Registries that do not list their repositories still have the tags of one that is named. */
async function repositoriesOf(
  registries: Registries,
  { registry, prefix, signal }: Place,
): Promise<string[]> {
  try {
    const all = await listRepositories(registries, registry, signal);
    return all.filter((name) => prefix === "" || name === prefix || name.startsWith(`${prefix}/`));
  } catch (error) {
    if (!(error instanceof RegistryTrouble) || error.code === "registry_unreachable") throw error;
    if (prefix !== "") {
      try {
        await registries.repository(parseReference(`${registry}/${prefix}`)).tags(signal);
        return [prefix];
      } catch (cause) {
        if (!(cause instanceof RegistryTrouble)) throw cause;
      }
    }
    throw new AppError("unsupported", `${registry} does not list its repositories: ${error.message}`, {
      details: { registry },
      remedy: advice(`Name a repository of it, as in ${registry}/team/python-numpy.`),
      cause: error,
    });
  }
}

async function tagsOf(
  registries: Registries,
  {
    registry,
    repositories,
    signal,
  }: { registry: string; repositories: readonly string[]; signal: AbortSignal },
): Promise<{ repository: string; tag: string }[]> {
  const lists = await mapPool(repositories, atOnce, async (repository) => {
    try {
      const tags = await registries.repository({ registry, repository }).tags(signal);
      return tags.filter((tag) => !referrersTag.test(tag)).map((tag) => ({ repository, tag }));
    } catch {
      // Removed meanwhile, or not for this user: the others are still an answer.
      return [];
    }
  });
  return lists.flat();
}

/** undefined if it is not a snapshot, or cannot be read. */
async function describe(
  registries: Registries,
  {
    registry,
    repository,
    tag,
    signal,
  }: { registry: string; repository: string; tag: string; signal: AbortSignal },
): Promise<Found | undefined> {
  try {
    const { bytes, mediaType, digest } = await registries
      .repository({ registry, repository })
      .manifest(tag, signal);
    const parsed = parseManifest(bytes, mediaType);
    if (parsed.kind !== "manifest" || parsed.manifest.artifactType !== mediaTypes.artifact) return undefined;
    const { config, layers, annotations = {} } = parsed.manifest;
    const totalBytes = layers.reduce((sum, { size }) => sum + size, config.size + bytes.length);
    return {
      reference: formatReference({ registry, repository, tag }),
      digest,
      total_bytes: totalBytes,
      annotations,
    };
  } catch {
    return undefined;
  }
}
