/** Under which tags the snapshots of an archive are kept, and which of them are here already. */
import { AppError } from "@forkd/contract";
import { asideTag, type Store, type StoredSnapshot } from "@forkd/store";
import type { ChainSnapshot } from "../format/config.ts";

export type Place = {
  snapshot: ChainSnapshot;
  tag: string;
  /** the same snapshot, if the store has it at this tag */
  existing: StoredSnapshot | undefined;
  /** the tag by which its child names it, if that is another one */
  insteadOf?: string | undefined;
};

/**
 * An ancestor gets the tag by which its child names it. If another snapshot has that tag, it gets the tag with
 * the beginning of its id, where its child finds it too. The head gets the tag that the caller chooses.
 */
export async function placesOf(
  store: Store,
  snapshots: readonly ChainSnapshot[],
  { tag, replace }: { tag: string; replace: boolean },
): Promise<Place[]> {
  const used = new Set([tag]);
  const places: Place[] = [];
  for (const [index, snapshot] of snapshots.entries()) {
    const named = snapshots[index + 1]?.manifest.parent?.tag;
    const tags = named === undefined ? [tag] : [named, asideTag(named, snapshot.id)];
    const free = tags.filter((each) => named === undefined || !used.has(each));
    const place = await firstPlace(store, snapshot, free);
    if (!place && !(named === undefined && replace)) throw taken(tags.at(-1) ?? tag);
    const found = place ?? { snapshot, tag, existing: undefined };
    places.push({ ...found, insteadOf: found.tag === (named ?? tag) ? undefined : named });
    used.add(found.tag);
  }
  return places;
}

async function firstPlace(
  store: Store,
  snapshot: ChainSnapshot,
  tags: readonly string[],
): Promise<Place | undefined> {
  for (const tag of tags) {
    const place = await placeAt(store, snapshot, tag);
    if (place) return place;
  }
  return undefined;
}

/** undefined if another snapshot has the tag */
async function placeAt(store: Store, snapshot: ChainSnapshot, tag: string): Promise<Place | undefined> {
  try {
    const existing = await store.get(tag);
    return existing.id === snapshot.id ? { snapshot, tag, existing } : undefined;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const isFree = error.code === "snapshot_not_found" || error.code === "snapshot_failed";
    return isFree ? { snapshot, tag, existing: undefined } : undefined;
  }
}

function taken(tag: string): AppError {
  return new AppError("snapshot_exists", `Cannot unpack snapshot "${tag}": another one has the tag`, {
    details: { tag },
    remedy: { action: "replace_snapshot", tag },
  });
}
