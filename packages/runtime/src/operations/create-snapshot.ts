/** Builds a snapshot from a recipe, a container image, or a root file system (and kernel) of the user. */
import { AppError, type CreateSnapshotRequest, type SnapshotInfo } from "@forkd/contract";
import { ImageLease, readRecipe, type Recipe } from "@forkd/image";
import type { AgentClient } from "@forkd/machine";
import type { Draft, StoredSnapshot } from "@forkd/store";
import { requireParent } from "../capture/layer-base.ts";
import type { Context } from "../context.ts";
import { withReplyDeadline } from "../guest/deadline.ts";
import { bake } from "../launch/bake.ts";
import { prepareChild, startChild } from "../launch/child.ts";
import { checkNetwork, planBuild, planExtension } from "../launch/plan-build.ts";
import { extend } from "../launch/steps/extend.ts";
import { findParent } from "../launch/steps/find-parent.ts";
import { refuseNamesOfUnbuilt } from "../launch/steps/inherited-services.ts";
import { runSteps } from "../launch/steps/run-steps.ts";
import type { Progress } from "../launch/warm-parent.ts";
import { noNetwork } from "../network/sandbox-network.ts";
import { attachProvenance, builtRecipe, packagesOf } from "../provenance/attach-provenance.ts";
import type { Runtime } from "../runtime.ts";
import { requireCompatible } from "../snapshots/compatibility.ts";
import { describeSnapshot } from "../snapshots/describe.ts";
import { refuseOrphans } from "../snapshots/lineage.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";
import { hazardProblem } from "../verify/requirement.ts";
import { verifySnapshot } from "../verify/verify-snapshot.ts";

type BuildContext = Context & { onProgress: Progress };

export function createSnapshot(
  runtime: Runtime,
  request: CreateSnapshotRequest,
  context: BuildContext,
): Promise<SnapshotInfo> {
  return runtime.work.whileOpen(context.signal, (signal) => create(runtime, request, { ...context, signal }));
}

async function create(
  runtime: Runtime,
  request: CreateSnapshotRequest,
  context: BuildContext & { signal: AbortSignal },
): Promise<SnapshotInfo> {
  const { signal, log, onProgress } = context;
  const startedAt = Date.now();
  using _tag = runtime.branches.reserve(request.tag, "build");
  if (request.force) await refuseOrphans(runtime, request.tag);
  await using draft = await runtime.store.draft(request.tag, { replace: request.force });
  using lease = new ImageLease();
  const recipe = request.recipe === undefined ? undefined : await readRecipe(request.recipe);
  if (recipe) checkNetwork(runtime.network, recipe);
  const work = { ...context, lease };
  const sealed =
    recipe?.spec.from === undefined
      ? await buildFromImages(runtime, draft, { request, recipe }, work)
      : await buildFromParent(runtime, draft, { request, recipe }, work);
  onProgress("check", "forking one child to see it answer");
  const report = { signal, onProgress };
  const packages = await answers(runtime, sealed, signal, (agent) => packagesOf(agent, report));
  // What its children map has the paths of the draft.
  if (sealed.manifest.files.layer) await runtime.store.discardMemory(sealed);
  await attachProvenance(draft, sealed, { packages, built: builtRecipe(recipe, request) }, report);
  // A branch may have been taken during the build.
  if (request.force) await refuseOrphans(runtime, request.tag);
  if (sealed.manifest.parent) await requireParent(runtime, sealed.manifest.parent);
  const snapshot = await draft.publish();
  if (snapshot.manifest.parent) runtime.compaction.consider(snapshot);
  await runtime.pool.drop(request.tag);
  runtime.events.snapshot("snapshot.ready", request.tag, { status: "ready" });
  log.info({ event: "snapshot.create", outcome: "ok", tag: request.tag, durationMs: Date.now() - startedAt });
  await verifyRequired(runtime, snapshot, { ...context, signal });
  return describeSnapshot(runtime, snapshot);
}

type Work = BuildContext & { signal: AbortSignal; lease: ImageLease };

async function buildFromImages(
  runtime: Runtime,
  draft: Draft,
  input: { request: CreateSnapshotRequest; recipe: Recipe | undefined },
  { signal, onProgress, lease }: Work,
): Promise<StoredSnapshot> {
  const { tag, no_cache: isFresh } = input.request;
  const { plan, ...over } = await planBuild(runtime, draft, input, { signal, onProgress, lease });
  using _room = admit(runtime, tag, plan.memoryMib);
  const layers = await runSteps(runtime, draft, { plan, ...over }, { signal, onProgress, lease, isFresh });
  const facts = await bake(runtime, draft, plan, { layers, signal, onProgress });
  onProgress("commit", "writing and hashing the snapshot");
  return await draft.seal(facts, { signal });
}

async function buildFromParent(
  runtime: Runtime,
  draft: Draft,
  { request, recipe }: { request: CreateSnapshotRequest; recipe: Recipe },
  work: Work,
): Promise<StoredSnapshot> {
  const { signal, onProgress, lease } = work;
  const { place, name } = await findParent(runtime, recipe, request.tag);
  if (place.kind === "recipe") {
    await refuseNamesOfUnbuilt(runtime, recipe, { name, dir: place.dir });
    // Its steps have other names than those of this build.
    const prefixed: Progress = (step, message) => onProgress(`${name} ${step}`, message);
    const parent = { tag: name, recipe: place.dir, force: false };
    await create(runtime, parent, { ...work, onProgress: prefixed });
  }
  const parent = await usableSnapshot(runtime, name);
  requireCompatible(name, parent.manifest, runtime.host);
  const plan = planExtension(parent, { request, recipe });
  using _room = admit(runtime, request.tag, parent.manifest.machine.memory_mib);
  return await extend(runtime, draft, plan, { signal, onProgress, lease, isFresh: request.no_cache });
}

function admit(runtime: Pick<Runtime, "admission">, tag: string, memoryMib: number): Disposable {
  return runtime.admission.admit({
    what: `build "${tag}"`,
    n: 1,
    memoryMib,
    // The guest's memory is a file that is written completely and read once.
    expectMib: memoryMib,
    writesMib: memoryMib,
    diskMib: 0,
    isSandbox: false,
  });
}

const checkedChildren = 4;

/**
 * The snapshot has its tag already, which a branch of its child needs. It cannot be forked until its checks have
 * passed, so that a build that fails or is cancelled here leaves nothing unsafe.
 */
async function verifyRequired(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  context: BuildContext & { signal: AbortSignal },
): Promise<void> {
  const { tag, manifest } = snapshot;
  if (!manifest.require) return;
  const { onProgress } = context;
  const request = { n: checkedChildren, only: manifest.require, keep: false };
  const { hazards } = await verifySnapshot(runtime, snapshot, request, {
    ...context,
    onProgress: (message) => onProgress("verify", message),
    onHazard: ({ id, outcome }) => onProgress("verify", `${id}: ${outcome.replace("_", " ")}`),
  });
  const open = hazards.flatMap((hazard) => {
    const problem = hazardProblem(hazard);
    return problem ? [`${hazard.id} (${problem.text})`] : [];
  });
  if (open.length === 0) return;
  throw new AppError(
    "unsafe_snapshot",
    `Built "${tag}", but it cannot be forked: it requires a check that has not passed: ${open.join(", ")}`,
    { details: { tag, require: manifest.require, hazards }, remedy: { action: "show_verification", tag } },
  );
}

/** Forks one child: a snapshot whose child does not answer gets no tag. Then calls `use` with its agent. */
async function answers<T>(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  signal: AbortSignal | undefined,
  use: (agent: AgentClient) => Promise<T>,
): Promise<T> {
  const child = await prepareChild(runtime, snapshot, { signal });
  await using sandbox = await startChild(runtime, child, {
    index: 0,
    env: {},
    values: undefined,
    labels: {},
    ttlSecs: undefined,
    network: noNetwork,
    askedAt: performance.now(),
  });
  await withReplyDeadline(sandbox.agent, "the child of the new snapshot is silent", sandbox.agent.ping());
  return await use(sandbox.agent);
}
