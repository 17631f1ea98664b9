/** Verifications in progress, on disk: what they made is removed even if the daemon crashes in between. */
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import { verifiedDir } from "./results.ts";

/** label of the sandboxes of a run; the value is the name of the run, which is also the tag of its branch */
export const runLabel = "forkd.verify";
const runPattern = /^verify-[0-9a-f]{12}$/;

type Parts = Pick<Runtime, "config" | "events" | "log" | "pool" | "registry" | "store">;

export async function noteRun({ config }: Pick<Runtime, "config">, run: string): Promise<void> {
  await mkdir(runsDir(config), { recursive: true, mode: 0o700 });
  await writeFile(join(runsDir(config), run), "", { mode: 0o600, flag: "wx" });
}

/** Kills the sandboxes of the run and removes its branch. The note goes last. */
export async function removeRun(runtime: Parts, run: string): Promise<void> {
  const own = runtime.registry.all().filter(({ facts }) => facts.labels[runLabel] === run);
  await Promise.all(
    own.map(async ({ id }) => {
      // It may have been killed, or its time to live is over.
      if (runtime.registry.find(id)) await runtime.registry.remove(id);
    }),
  );
  await runtime.pool.drop(run);
  try {
    await runtime.store.remove(run);
    runtime.events.snapshot("snapshot.removed", run);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "snapshot_not_found") throw error;
  }
  await rm(join(runsDir(runtime.config), run), { force: true });
}

/** After a crash. A run that cannot be removed is tried again by the next daemon. */
export async function removeAbandonedRuns(runtime: Parts): Promise<void> {
  for (const run of await listRuns(runtime)) {
    try {
      await removeRun(runtime, run);
      runtime.log.info({ event: "verify.abandoned", run });
    } catch (error) {
      runtime.log.error({ event: "verify.abandoned", run, error });
    }
  }
}

async function listRuns({ config }: Pick<Runtime, "config">): Promise<string[]> {
  try {
    return (await readdir(runsDir(config))).filter((name) => runPattern.test(name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

function runsDir(config: Runtime["config"]): string {
  return join(verifiedDir(config), "runs");
}
