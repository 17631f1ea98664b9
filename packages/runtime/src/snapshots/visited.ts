/** Where a sandbox has been: the snapshots that it may be rewound to, by id. */
import { maxLineage } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { lastAttached } from "../sandbox/states.ts";

/** All of the longest chain. */
const maxVisited = maxLineage;

/** The chain of what it runs from, after all that was noted before. A removed ancestor is left out. */
export async function visitedBy(runtime: Pick<Runtime, "store">, sandbox: Sandbox): Promise<string[]> {
  const start = lastAttached(sandbox.status)?.machine.base ?? sandbox.saved?.snapshot;
  // A sandbox cannot go back to its own saved state, which has no tag.
  const isTagged = start !== undefined && start.id !== sandbox.saved?.snapshot.id;
  const chain = start ? await runtime.store.chain(start).catch(() => [start]) : [];
  const ids = chain.map(({ id }) => id).reverse();
  const now = isTagged ? ids : ids.slice(0, -1);
  return [...new Set([...sandbox.visited.filter((id) => !now.includes(id)), ...now])].slice(-maxVisited);
}
