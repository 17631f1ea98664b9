/** What sandboxes left on the host that are neither in the registry nor in the pool. */
import type { Runtime } from "../runtime.ts";
import {
  findStrayGroups,
  findStrays,
  removeStrayGroups,
  removeStrays,
  type Claim,
  type Stray,
} from "./strays.ts";

type Leftovers = { strays: Stray[]; groups: string[] };

/** Directories, processes and control groups. */
export async function findLeftovers(
  runtime: Pick<Runtime, "cgroups" | "config" | "places">,
): Promise<Leftovers> {
  const unclaimed = (id: string): Claim | undefined =>
    runtime.places.has(id) ? undefined : { hasRecord: false };
  const strays = await findStrays(runtime.config, unclaimed);
  return { strays, groups: findStrayGroups(runtime.cgroups, (id) => runtime.places.has(id)) };
}

export async function removeLeftovers(
  runtime: Pick<Runtime, "cgroups" | "config">,
  { strays, groups }: Leftovers,
): Promise<void> {
  await removeStrays(runtime.config, strays);
  await removeStrayGroups(runtime.cgroups, groups);
}
