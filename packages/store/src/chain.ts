/** Chains of layered snapshots: from a snapshot down to the flat one, and which snapshots depend on which. */
import { AppError } from "@forkd/contract";
import { memoryBytes } from "./manifest.ts";
import type { StoredSnapshot } from "./snapshot.ts";
import { corrupt } from "./snapshot-errors.ts";

/** Maximum number of snapshots from one to the nearest whose whole memory is kept, both included. */
export const maxChainDepth = 32;
/** Maximum number of snapshots in a chain, including the flat one. */
export const maxLineage = 1000;
const maxTag = 64;
const asideDigits = 12;

type Lookup = {
  get: (tag: string) => Promise<StoredSnapshot>;
  /** whether the whole memory of a layered snapshot is kept */
  hasImage: (snapshot: StoredSnapshot) => Promise<boolean>;
};

/** Returns the chain from the snapshot to the flat one at the bottom, and checks every parent on the way. */
export async function walkChain(snapshot: StoredSnapshot, lookup: Lookup): Promise<StoredSnapshot[]> {
  const chain = [snapshot];
  for (let child = snapshot; child.manifest.parent !== undefined;) {
    if (chain.length === maxLineage)
      throw corrupt(snapshot, `its chain is longer than ${maxLineage} snapshots`);
    child = await parentOf(child, child.manifest.parent, lookup.get);
    chain.push(child);
  }
  if (chain.length > maxChainDepth) await refuseLongRuns(snapshot, chain, lookup);
  return chain;
}

async function refuseLongRuns(
  snapshot: StoredSnapshot,
  chain: readonly StoredSnapshot[],
  { hasImage }: Lookup,
): Promise<void> {
  let run = 0;
  for (const each of chain) {
    run++;
    if (run > maxChainDepth)
      throw corrupt(snapshot, `its chain is longer than ${maxChainDepth} snapshots without a whole memory`);
    if (await hasImage(each)) run = 1;
  }
}

/**
 * The tag of a parent that came with its child from another host, where `tag` was free. Its children find it
 * there if another snapshot has `tag` here.
 */
export function asideTag(tag: string, id: string): string {
  return `${tag.slice(0, maxTag - asideDigits - 1)}-${id.slice(0, asideDigits)}`;
}

type ParentName = { tag: string; id: string };
type Get = (tag: string) => Promise<StoredSnapshot>;

/** undefined if the parent is neither at its tag nor aside */
export async function findParent({ tag, id }: ParentName, get: Get): Promise<StoredSnapshot | undefined> {
  for (const each of [tag, asideTag(tag, id)]) {
    const found = await get(each).catch(unlessApp);
    if (found?.id === id) return found;
  }
  return undefined;
}

function unlessApp(error: unknown): undefined {
  if (!(error instanceof AppError)) throw error;
}

async function parentOf(child: StoredSnapshot, name: ParentName, get: Get): Promise<StoredSnapshot> {
  const { tag } = name;
  const parent = await findParent(name, get);
  if (parent === undefined) throw await missingParent(child, tag, get);
  if (memoryBytes(parent.manifest) !== memoryBytes(child.manifest)) {
    throw corrupt(child, `its parent "${tag}" has another memory size`);
  }
  return parent;
}

async function missingParent(child: StoredSnapshot, tag: string, get: Get): Promise<AppError> {
  try {
    await get(tag);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const isMissing = error.code === "snapshot_not_found" || error.code === "snapshot_failed";
    return corrupt(child, `its parent "${tag}" ${isMissing ? "is missing" : "cannot be read"}`, error);
  }
  return corrupt(child, `its parent "${tag}" was replaced`);
}

/** Tags of the snapshots in `all` whose layer has the snapshot `tag` as parent, even if `tag` was removed. */
export function dependentsOf(all: readonly StoredSnapshot[], tag: string): string[] {
  const id = all.find((snapshot) => snapshot.tag === tag)?.id;
  const isAside = (parent: ParentName) => asideTag(parent.tag, parent.id) === tag;
  const isOver = (parent: ParentName): boolean => {
    if (parent.tag !== tag && !isAside(parent)) return false;
    if (id !== undefined) return parent.id === id;
    return !all.some((each) => each.id === parent.id && each.tag === asideTag(parent.tag, parent.id));
  };
  return all
    .filter(({ manifest: { parent } }) => parent !== undefined && isOver(parent))
    .map((snapshot) => snapshot.tag);
}

/** Tags of all snapshots that depend on `tag`, directly or not; dependents come first. */
export function descendantsOf(all: readonly StoredSnapshot[], tag: string): string[] {
  const seen = new Set([tag]);
  const found: string[] = [];
  const visit = (below: string): void => {
    for (const child of dependentsOf(all, below)) {
      if (seen.has(child)) continue;
      seen.add(child);
      visit(child);
      found.push(child);
    }
  };
  visit(tag);
  return found;
}
