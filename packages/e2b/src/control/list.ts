/** Lists of sandboxes and snapshots, page by page. */
import { AppError, type SandboxInfo } from "@forkd/contract";
import { findSnapshots, listSandboxes } from "@forkd/runtime";
import { invalid, type Answer } from "./answer.ts";
import { isForkTag } from "./fork-snapshots.ts";
import { listed, metadataOf } from "./describe.ts";
import { buildLabel } from "../templates/builds.ts";
import { diskMibOf } from "./disk-size.ts";
import type { Call, Plane } from "./plane.ts";

const defaultLimit = 100;
const maxLimit = 1000;

/** By default those that run and those that are paused, the newest first. */
export async function listV2(plane: Plane, { query }: Call): Promise<Answer> {
  const states = statesOf(query.get("state"));
  const wanted = filterOf(query.get("metadata"));
  const after = query.get("startedAfter");
  const afterUnix = after === null ? -Infinity : Date.parse(after) / 1000;
  if (Number.isNaN(afterUnix)) throw invalid("startedAfter", "must be a date in ISO 8601");
  const template = query.get("template") ?? undefined;
  const found = sandboxesOf(plane).filter(({ info, record }) => {
    const metadata = metadataOf(info, record);
    return (
      states.has(info.state) &&
      info.created_at_unix > afterUnix &&
      (template === undefined ||
        [record?.template_id, record?.alias, info.snapshot_tag].includes(template)) &&
      [...wanted].every(([name, value]) => metadata[name] === value)
    );
  });
  const descending = query.get("order") !== "asc";
  if (descending) found.reverse();
  const { items, next } = pageOf(found, query, { keyOf: ({ info }) => ageKey(info), descending });
  return { status: 200, body: await describeAll(plane, items), headers: nextHeader(next) };
}

/** The older list: running sandboxes only, on one page. */
export async function listV1(plane: Plane, { query }: Call): Promise<Answer> {
  const wanted = filterOf(query.get("metadata"));
  const found = sandboxesOf(plane).filter(({ info, record }) => {
    const metadata = metadataOf(info, record);
    return info.state === "running" && [...wanted].every(([name, value]) => metadata[name] === value);
  });
  return { status: 200, body: await describeAll(plane, found) };
}

type Found = { info: SandboxInfo; record: ReturnType<Plane["records"]["get"]> };

/** Without those in which templates are built. */
function sandboxesOf({ runtime, records }: Plane): Found[] {
  return listSandboxes(runtime, {})
    .filter(({ labels }) => labels[buildLabel] === undefined)
    .map((info) => ({ info, record: records.get(info.id) }));
}

async function describeAll({ runtime, domain }: Plane, found: readonly Found[]): Promise<unknown[]> {
  const sizes = new Map<string, number>();
  for (const { info } of found)
    if (!sizes.has(info.snapshot_tag))
      sizes.set(info.snapshot_tag, await diskMibOf(runtime, info.snapshot_tag));
  return found.map(({ info, record }) =>
    listed(info, record, { domain: domain(), diskMib: sizes.get(info.snapshot_tag) }),
  );
}

function statesOf(text: string | null): Set<string> {
  const states = text === null || text === "" ? ["running", "paused"] : text.split(",");
  const wrong = states.find((each) => each !== "running" && each !== "paused");
  if (wrong !== undefined) throw invalid("state", `"${wrong}" must be running or paused`);
  return new Set(states);
}

/** Clients encode names and values, make a query of them, and encode that once more as a parameter. */
export function filterOf(text: string | null): Map<string, string> {
  const pairs = [...new URLSearchParams(text ?? "")];
  return new Map(pairs.map(([name, value]): [string, string] => [decode(name), decode(value)]));
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    throw new AppError(
      "invalid_request",
      `Invalid request: metadata: "${text}" is not percent-encoded UTF-8`,
      {
        cause: error,
      },
    );
  }
}

/** Branches that can be forked, without those that only exist for the children of a fork. */
export async function listSnapshots({ runtime, names }: Plane, { query }: Call): Promise<Answer> {
  const sandbox = query.get("sandboxID") ?? undefined;
  const name = query.get("name") ?? undefined;
  const found = (await findSnapshots(runtime, { state: "ready" }))
    .filter(({ tag, branched_from: from = "" }) => from.startsWith("sb-") && !isForkTag(tag))
    .filter(({ branched_from: from }) => sandbox === undefined || from === sandbox)
    .map(({ tag }) => ({ snapshotID: tag, names: names.namesOfTag(tag) }))
    .filter((each) => name === undefined || each.snapshotID === name || each.names.includes(name));
  const { items, next } = pageOf(found, query, { keyOf: ({ snapshotID }) => snapshotID });
  return { status: 200, body: items, headers: nextHeader(next) };
}

type Page<T> = { items: T[]; next: string | undefined };
type Order<T> = { readonly keyOf: (each: T) => string; readonly descending?: boolean };

/**
 * The token of the next page is the key of the last entry of this one, so entries that are removed in between
 * do no harm. `all` is sorted by its keys.
 */
export function pageOf<T>(
  all: readonly T[],
  query: URLSearchParams,
  { keyOf, descending }: Order<T>,
): Page<T> {
  const limit = limitOf(query.get("limit"));
  const token = query.get("nextToken");
  const last = token === null || token === "" ? undefined : Buffer.from(token, "base64url").toString();
  const isLater = (key: string) => last === undefined || (descending ? key < last : key > last);
  const rest = all.filter((each) => isLater(keyOf(each)));
  const items = rest.slice(0, limit);
  const end = items.at(-1);
  const hasMore = rest.length > limit;
  return { items, next: hasMore && end ? Buffer.from(keyOf(end)).toString("base64url") : undefined };
}

/** Sorts as text as the numbers do. */
function ageKey({ created_at_unix: created, id }: SandboxInfo): string {
  return `${created.toFixed(6).padStart(20, "0")} ${id}`;
}

function limitOf(text: string | null): number {
  if (text === null || text === "") return defaultLimit;
  const limit = Number(text);
  if (!Number.isInteger(limit) || limit < 1 || limit > maxLimit)
    throw invalid("limit", `must be 1 to ${maxLimit}`);
  return limit;
}

function nextHeader(next: string | undefined): Record<string, string> {
  return next === undefined ? {} : { "x-next-token": next };
}
