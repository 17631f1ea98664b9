/** Copies a snapshot into one that needs no parents. */
import { AppError, type ParsedOf, type SnapshotInfo } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";
import { describeSnapshot } from "../snapshots/describe.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";

export function compact(
  runtime: Pick<Runtime, "branches" | "events" | "host" | "store" | "work">,
  { tag, to }: ParsedOf<"compact">,
  { signal, log }: Context,
): Promise<SnapshotInfo> {
  return runtime.work.whileOpen(signal, async (open) => {
    if (tag === to)
      throw new AppError(
        "invalid_request",
        "Invalid request: to: must be another tag than the snapshot's own",
      );
    using _tag = runtime.branches.reserve(to, "compaction");
    const startedAt = performance.now();
    const from = await usableSnapshot(runtime, tag);
    const made = await withSnapshotFiles(runtime, from, () =>
      runtime.store.compact(from, to, { signal: open }),
    );
    runtime.events.snapshot("snapshot.ready", to, { status: "ready" });
    log.info({
      event: "snapshot.compact",
      outcome: "ok",
      tag,
      to,
      durationMs: Math.round(performance.now() - startedAt),
    });
    return withSnapshotFiles(runtime, made, () => describeSnapshot(runtime, made));
  });
}
