/** Shares snapshots: sends them to registries and URLs, and fetches them. */
import type { ParsedOf, PullResult, PushResult, SearchResult, SignResult } from "@forkd/contract";
import { roundMs, Scope } from "@forkd/base";
import type { Context } from "../context.ts";
import { pullSnapshot } from "../hub/pull.ts";
import { pushSnapshot } from "../hub/push.ts";
import { searchRegistry } from "../hub/search.ts";
import { signManifest } from "../hub/sign.ts";
import type { OnHubProgress } from "../hub/transfer-progress.ts";
import type { Runtime } from "../runtime.ts";
import { describeSnapshot } from "../snapshots/describe.ts";
import { refuseOrphans } from "../snapshots/lineage.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";

type HubContext = Context & { onProgress: OnHubProgress };
type PullContext = HubContext & {
  /** builds a snapshot from a recipe */
  build: (request: { tag: string; recipe: string; force: boolean }, signal: AbortSignal) => Promise<unknown>;
};

export function push(
  runtime: Runtime,
  request: ParsedOf<"push">,
  { signal, log, onProgress }: HubContext,
): Promise<PushResult> {
  return runtime.work.whileOpen(signal, async (open) => {
    const startedAt = performance.now();
    const { tag } = request;
    runtime.branches.refuse(tag);
    const snapshot = await runtime.store.get(tag);
    const pushed = await withSnapshotFiles(runtime, snapshot, () =>
      pushSnapshot(runtime, snapshot, request, { signal: open, onProgress }),
    );
    const { reference, digest, totalBytes, movedBytes } = pushed;
    const durationMs = roundMs(performance.now() - startedAt);
    log.info({ event: "hub.push", outcome: "ok", tag, reference, digest, movedBytes, durationMs });
    return {
      tag,
      reference,
      ...(digest !== undefined && { digest }),
      total_bytes: totalBytes,
      moved_bytes: movedBytes,
      duration_ms: durationMs,
    };
  });
}

export function pull(
  runtime: Runtime,
  request: ParsedOf<"pull">,
  { signal, log, onProgress, build }: PullContext,
): Promise<PullResult> {
  return runtime.work.whileOpen(signal, async (open) => {
    const startedAt = performance.now();
    await using scope = new Scope();
    const pulled = await pullSnapshot(runtime, request, {
      signal: open,
      onProgress,
      onPlaces: async (placed) => {
        for (const each of placed.filter(({ exists }) => !exists)) {
          const reserved = runtime.branches.reserve(each.tag, "pull");
          scope.defer(() => reserved[Symbol.dispose]());
        }
        const head = placed.at(-1);
        if (request.force && head && !head.exists) await refuseOrphans(runtime, head.tag);
      },
      build: async (asked) => {
        await build(asked, open);
        return await runtime.store.get(asked.tag);
      },
    });
    const { reference, digest, snapshots, movedBytes, trust, rebuilt, snapshot } = pulled;
    // The build has reported what it made.
    for (const each of rebuilt ? [] : snapshots.filter(({ existed }) => !existed)) {
      await runtime.pool.drop(each.tag);
      runtime.events.snapshot("snapshot.ready", each.tag, { status: "ready" });
    }
    const durationMs = roundMs(performance.now() - startedAt);
    log.info({
      event: "hub.pull",
      outcome: "ok",
      tag: snapshot.tag,
      reference,
      digest,
      trust: trust.outcome,
      movedBytes,
      durationMs,
    });
    return {
      reference,
      digest,
      snapshots,
      moved_bytes: movedBytes,
      duration_ms: durationMs,
      trust: { ...trust },
      rebuilt,
      snapshot: await withSnapshotFiles(runtime, snapshot, () => describeSnapshot(runtime, snapshot)),
    };
  });
}

/** Throws `artifact_not_found` if the repository does not have the manifest. */
export function signPushed(
  { config, work }: Pick<Runtime, "config" | "work">,
  request: ParsedOf<"signPushed">,
  { signal, log }: Context,
): Promise<SignResult> {
  return work.whileOpen(signal, async (open) => {
    const signed = await signManifest(config, request, open);
    log.info({ event: "hub.sign", outcome: "ok", ...signed });
    return signed;
  });
}

export function searchHub(
  { config, work }: Pick<Runtime, "config" | "work">,
  request: ParsedOf<"searchHub">,
  { signal }: Context,
): Promise<SearchResult> {
  return work.whileOpen(signal, (open) => searchRegistry(config, request, open));
}
