/** The ready children of one snapshot, and which snapshots have any. */
import type { StoredSnapshot } from "@forkd/store";
import { Demand } from "./demand.ts";
import type { ReadyChild } from "./prepared.ts";

export type Shelf = {
  snapshot: StoredSnapshot;
  ready: ReadyChild[];
  making: number;
  demand: Demand;
  uses: number;
  lastUsed: number;
  /** attempts that failed in a row, and when the next one may begin */
  failures: number;
  restsUntil: number;
};

export function newShelf(snapshot: StoredSnapshot): Shelf {
  const lastUsed = performance.now();
  const state = { making: 0, uses: 0, lastUsed, failures: 0, restsUntil: 0 };
  return { snapshot, ready: [], demand: new Demand(), ...state };
}

export function isHot({ snapshot, uses }: Shelf): boolean {
  return uses >= (snapshot.manifest.origin.kind === "branch" ? 2 : 1);
}

/**
 * Whether a child can be made ahead of need. Its programs run for some moments then, and reach no network. So a
 * branch whose children may connect is not pooled: what it was about to send would fail. Nor is one that is in the
 * middle of an eval, whose output would be older than the fork.
 */
export function isPoolable({ manifest }: StoredSnapshot): boolean {
  if (manifest.kernels.some(({ unanswered }) => unanswered.length > 0)) return false;
  const { mode = "none", rules = [] } = manifest.network ?? {};
  return manifest.origin.kind === "build" || mode === "none" || (mode === "filtered" && rules.length === 0);
}

/** A tag can be given to another snapshot, which the waiting children cannot serve. */
export function keyOf({ tag, id, stamp }: StoredSnapshot): string {
  return `${tag}:${id}:${stamp}`;
}
