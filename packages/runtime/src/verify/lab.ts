/**
 * The children of one verification: forked from the snapshot directly and through the pool, and from a branch
 * of the first child. Disposing it kills them and removes the branch, unless they are kept.
 *
 * A run is noted on disk before it makes anything, so that a daemon that starts after a crash removes what the
 * run has left (`removeAbandonedRuns`).
 */
import { randomBytes } from "node:crypto";
import { fromErrorBody, isSandbox, plural, type VerifyReport, type VerifyRequest } from "@forkd/contract";
import { Scope } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import { limitsOf } from "../admission/limits.ts";
import { branchSandbox } from "../capture/branch-sandbox.ts";
import type { Context } from "../context.ts";
import { admitFork, forkChildren } from "../launch/fork-children.ts";
import { noNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import { subjectOf } from "./subject.ts";
import type { Lab, Subject } from "./hazard.ts";
import { noteRun, removeRun, runLabel } from "./runs.ts";

/** children of the branch */
const branchedCount = 2;
/** a daemon that does not start again soon must not leave machines behind */
const ttlSecs = 3600;
const poolMs = 10_000;

type LabRequest = Pick<VerifyRequest, "n" | "keep"> & {
  snapshot: StoredSnapshot;
  context: Context & { signal: AbortSignal };
  onProgress: (message: string) => void;
  /** Runs in the first child before it is branched. */
  prepare: (source: Subject, scratch: string) => Promise<void>;
};

type OpenLab = Lab &
  AsyncDisposable & { readonly counts: VerifyReport["children"]; readonly kept: VerifyReport["kept"] };

export async function openLab(runtime: Runtime, request: LabRequest): Promise<OpenLab> {
  const { snapshot, n, keep, onProgress, prepare } = request;
  await using scope = new Scope();
  const scratch = `verify-${randomBytes(6).toString("hex")}`;
  if (!keep) {
    await noteRun(runtime, scratch);
    // Killed and removed on every path, also if the caller has gone.
    scope.defer(() => removeRun(runtime, scratch));
  }
  const fork = (from: StoredSnapshot, count: number) =>
    forkSome(runtime, { ...request, scratch, from, count });
  const firstCount = Math.ceil(n / 2);
  onProgress(`forking ${plural(firstCount, "child", "children")}`);
  const first = await fork(snapshot, firstCount);
  await runtime.pool.filled(snapshot, n - firstCount, poolMs, request.context.signal);
  onProgress(`forking ${plural(n - firstCount, "child", "children")}, from the pool if it is in use`);
  const second = n === firstCount ? [] : await fork(snapshot, n - firstCount);
  const children = [...first, ...second].map((id, at) =>
    subjectOf(`child ${at + 1}`, runtime.registry.get(id)),
  );
  const [source] = children;
  if (!source) throw new Error("a lab needs a child");
  onProgress("preparing the first child");
  await prepare(source, scratch);
  onProgress("branching the first child");
  await branchSandbox(
    runtime,
    { id: source.sandbox.id, tag: scratch, wait: true, n: 0, vary: [], env: {}, labels: {} },
    request.context,
  );
  const branch = await runtime.store.get(scratch);
  onProgress(`forking ${branchedCount} children of the branch`);
  const last = await fork(branch, branchedCount);
  const branched = last.map((id, at) => subjectOf(`branched child ${at + 1}`, runtime.registry.get(id)));
  const pooled = children.filter(({ sandbox }) => sandbox.current.from === "pool").length;
  const kept = scope.keep();
  return {
    runtime,
    snapshot,
    children,
    source,
    branched,
    branch,
    scratch,
    counts: { forked: n - pooled, pooled, branched: branched.length },
    kept: keep ? { sandboxes: [...first, ...second, ...last], snapshots: [scratch] } : undefined,
    [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose](),
  };
}

type SomeChildren = LabRequest & { scratch: string; from: StoredSnapshot; count: number };

/** All of them, or an error: a fork that fails is not a child that could be checked. */
async function forkSome(
  runtime: Runtime,
  { scratch, keep, from, count, context }: SomeChildren,
): Promise<string[]> {
  const request = {
    n: count,
    labels: { [runLabel]: scratch },
    env: {},
    vary: [],
    ...(!keep && { ttl_secs: ttlSecs }),
  };
  // With a link and no rules: what the checks dial inside the guest works, and nothing leaves it.
  const mode = runtime.network.device === "none" ? ("none" as const) : ("filtered" as const);
  const network = { ...noNetwork, mode };
  const plan = { snapshot: from, request, limits: limitsOf(runtime, {}), network, isVerification: true };
  const entries = await forkChildren(runtime, admitFork(runtime, plan, context.caller), context);
  return entries.map((entry) => {
    if (isSandbox(entry)) return entry.id;
    throw fromErrorBody(entry);
  });
}
