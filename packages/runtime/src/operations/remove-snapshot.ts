/** Removes a snapshot, and with `cascade` its descendants. */
import { AppError, type ParsedOf } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import { dependentsOf, orphanRemedy, sandboxesOn } from "../snapshots/lineage.ts";

export async function removeSnapshot(
  runtime: Pick<Runtime, "branches" | "events" | "pool" | "registry" | "store">,
  { tag, cascade, force }: ParsedOf<"removeSnapshot">,
): Promise<void> {
  runtime.branches.refuse(tag);
  const doomed = cascade ? [...(await runtime.store.descendants(tag)), tag] : [tag];
  if (!force) for (const each of doomed) await refuseUsed(runtime, each, doomed);
  for (const each of doomed) {
    await runtime.pool.drop(each);
    await runtime.store.remove(each);
    runtime.events.snapshot("snapshot.removed", each);
  }
}

async function refuseUsed(
  runtime: Pick<Runtime, "branches" | "registry" | "store">,
  tag: string,
  doomed: readonly string[],
): Promise<void> {
  const users = sandboxesOn(runtime, tag);
  if (users.length > 0) {
    throw new AppError(
      "snapshot_in_use",
      `Cannot remove snapshot "${tag}": ${users.length} sandboxes run from it`,
      {
        details: { tag, sandboxes: users.slice(0, 20), count: users.length },
        remedy: { action: "kill_children", tag },
      },
    );
  }
  const dependents = (await dependentsOf(runtime, tag)).filter((each) => !doomed.includes(each));
  if (dependents.length === 0) return;
  throw new AppError(
    "snapshot_in_use",
    `Cannot remove snapshot "${tag}": ${dependents.join(", ")} would be orphaned`,
    { details: { tag, dependents }, remedy: orphanRemedy(tag, dependents) },
  );
}
