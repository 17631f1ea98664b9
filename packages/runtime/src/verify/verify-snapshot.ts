/** One verification from the first child to the stored result. The caller runs it while the runtime is open. */
import {
  AppError,
  type HazardId,
  type HazardResult,
  type VerifyReport,
  type VerifyRequest,
} from "@forkd/contract";
import { roundMs } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import type { Hazard } from "./hazard.ts";
import { hazards as allHazards } from "./hazards.ts";
import { openLab } from "./lab.ts";
import { describeResult, saveResult } from "./results.ts";
import { checkAll, prepareAll, type Unprepared } from "./suite.ts";

export type VerifyHooks = {
  onProgress: (message: string) => void;
  onHazard: (result: HazardResult) => void;
};

type VerifyContext = Context & VerifyHooks & { signal: AbortSignal };

/** `hazards` is for tests. */
export async function verifySnapshot(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  request: Pick<VerifyRequest, "n" | "only" | "keep">,
  context: VerifyContext,
  hazards: readonly Hazard[] = allHazards,
): Promise<VerifyReport> {
  const startedAt = performance.now();
  const { signal, onProgress, onHazard, log } = context;
  const asked = hazards.filter(({ id }) => request.only?.includes(id) ?? true);
  let unprepared: Unprepared = new Map<HazardId, never>();
  const results: HazardResult[] = [];
  let rest: Pick<VerifyReport, "children" | "kept">;
  {
    await using lab = await openLab(runtime, {
      ...request,
      snapshot,
      context,
      onProgress,
      prepare: async (source, scratch) => {
        unprepared = await prepareAll(asked, source, { scratch }, signal);
      },
    });
    onProgress(`checking ${asked.length === 1 ? (asked[0]?.id ?? "") : `${asked.length} hazards`}`);
    const done = await checkAll(asked, lab, { unprepared, signal, onResult: onHazard });
    results.push(...done);
    rest = { children: lab.counts, ...(lab.kept && { kept: lab.kept }) };
    onProgress("removing the children");
  }
  await requireSame(runtime, snapshot);
  const stored = await saveResult(runtime, snapshot, results);
  const verification = describeResult(runtime, { ...stored, hazards: results });
  log.info({ event: "snapshot.verify", outcome: verification.outcome, tag: snapshot.tag });
  return { ...verification, ...rest, duration_ms: roundMs(performance.now() - startedAt) };
}

/** A result is of no use for a snapshot that has gone. */
async function requireSame({ store }: Pick<Runtime, "store">, snapshot: StoredSnapshot): Promise<void> {
  if (await store.isCurrent(snapshot)) return;
  throw new AppError(
    "snapshot_not_found",
    `Cannot keep the result for "${snapshot.tag}": the snapshot was removed or replaced meanwhile`,
    { details: { tag: snapshot.tag }, remedy: { action: "list_snapshots" } },
  );
}
