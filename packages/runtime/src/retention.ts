/**
 * Branches that nobody needs any more. Only branches: what was built was built to stay. One goes only if no snapshot or saved state is
 * a layer over it and no sandbox runs from it or would begin anew from it; a chain goes from its end.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { GcRequest } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { dependentsOf, sandboxesOn } from "./lineage.ts";
import type { Runtime } from "./open-runtime.ts";
import { gc } from "./operations/snapshots.ts";

export type Policy = Pick<GcRequest, "branches" | "older_than_secs" | "keep_last">;

const daySecs = 86_400;

/** In the order in which they can be removed. */
export async function expiredBranches(runtime: Runtime, policy: Policy): Promise<StoredSnapshot[]> {
  const { older_than_secs: age, keep_last: kept = 0 } = policy;
  if (!policy.branches && age === undefined && policy.keep_last === undefined) return [];
  const before = age === undefined ? Number.POSITIVE_INFINITY : Date.now() / 1000 - age;
  const found = (await runtime.store.list()).filter(
    (each): each is StoredSnapshot => !("problem" in each) && each.manifest.origin.kind === "branch",
  );
  const branches = await newestFirst(found);
  const candidates = branches.slice(kept).filter(({ manifest }) => manifest.created_at_unix <= before);
  const doomed: StoredSnapshot[] = [];
  // The newest first, so that layers are met before what they stand on; one round more as long as that frees another.
  for (let found = true; found;) {
    found = false;
    for (const each of candidates) {
      if (doomed.includes(each) || !(await isFree(runtime, each.tag, doomed))) continue;
      doomed.push(each);
      found = true;
    }
  }
  return doomed;
}

/** Manifests tell the second; of two of the same second the files tell which was written first. */
async function newestFirst(snapshots: readonly StoredSnapshot[]): Promise<StoredSnapshot[]> {
  const dated = await Promise.all(
    snapshots.map(async (snapshot) => {
      const written = await stat(join(snapshot.dir, "manifest.json")).catch(() => undefined);
      return { snapshot, at: snapshot.manifest.created_at_unix, writtenMs: written?.mtimeMs ?? 0 };
    }),
  );
  dated.sort((a, b) => b.at - a.at || b.writtenMs - a.writtenMs);
  return dated.map(({ snapshot }) => snapshot);
}

/** Nothing stands on it but what goes too. */
export async function isFree(
  runtime: Runtime,
  tag: string,
  doomed: readonly { tag: string }[] = [],
): Promise<boolean> {
  if (runtime.branches.has(tag) || sandboxesOn(runtime, tag).length > 0) return false;
  const origin = runtime.registry.all().some((each) => !each.isDead && each.snapshotTag === tag);
  if (origin) return false;
  const dependents = await dependentsOf(runtime, tag);
  return dependents.every((each) => doomed.some((other) => other.tag === each));
}

/** Applies the configured policy from time to time; disposing the result ends that. */
export function startRetention(runtime: Runtime): Disposable {
  const { gcIntervalSecs, retention } = runtime.quota;
  if (gcIntervalSecs === 0) return { [Symbol.dispose]: () => undefined };
  const request: GcRequest = {
    dry_run: false,
    ...(retention.maxAgeDays > 0 && { older_than_secs: retention.maxAgeDays * daySecs }),
    ...(retention.keepLast > 0 && { keep_last: retention.keepLast }),
  };
  let running = false;
  const timer = setInterval(() => {
    if (running || runtime.closing.signal.aborted) return;
    running = true;
    void collect(runtime, request).finally(() => (running = false));
  }, gcIntervalSecs * 1000);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

async function collect(runtime: Runtime, request: GcRequest): Promise<void> {
  try {
    const { removed, freed_bytes: freedBytes } = await runtime.whileOpen(undefined, () =>
      gc(runtime, request),
    );
    if (removed.length > 0) runtime.log.info({ event: "gc.run", outcome: "ok", removed, freedBytes });
  } catch (error) {
    runtime.log.error({ event: "gc.run", outcome: "failed", error });
  }
}
