/** Removes a snapshot, and with `cascade` its descendants. */
import { AppError, plural, type ParsedOf, type RemovedSnapshots } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import { dependentsOf, orphanRemedy, sandboxesOn } from "../snapshots/lineage.ts";

/** Reports everything that it removed, or with `dry_run` would remove. Refuses the same in both cases. */
export async function removeSnapshot(
  runtime: Pick<Runtime, "branches" | "events" | "pool" | "registry" | "store">,
  { tag, cascade, force, dry_run = false }: ParsedOf<"removeSnapshot">,
): Promise<RemovedSnapshots> {
  runtime.branches.refuse(tag);
  const doomed = cascade ? [...(await runtime.store.descendants(tag)), tag] : [tag];
  if (!force) for (const each of doomed) await refuseUsed(runtime, each, doomed);
  const answer = {
    removed: doomed.map((each) => ({ tag: each })),
    freed_bytes: await freedBy(runtime, doomed),
    dry_run,
  };
  if (dry_run) return answer;
  for (const each of doomed) {
    await runtime.pool.drop(each);
    await runtime.store.remove(each);
    await runtime.pool.forget(each);
    runtime.events.snapshot("snapshot.removed", each);
  }
  return answer;
}

/** Counts nothing for snapshots that cannot be read; throws if there is none. */
async function freedBy({ store }: Pick<Runtime, "store">, tags: readonly string[]): Promise<number> {
  const found = await Promise.all(
    tags.map((tag) =>
      store.get(tag).catch((error: unknown) => {
        if (error instanceof AppError && error.code === "snapshot_not_found") throw error;
        return undefined;
      }),
    ),
  );
  return store.freedBytes(found.filter((each) => each !== undefined));
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
      `Cannot remove snapshot "${tag}": ${plural(users.length, "sandbox")} ${users.length === 1 ? "runs" : "run"} from it`,
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
