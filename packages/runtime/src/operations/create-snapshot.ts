/** Builds a snapshot from a recipe, or from a root file system (and kernel) of the user. */
import { guestTrustVariables } from "@forkd/egress";
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import { AppError, type CreateSnapshotRequest, type Language, type SnapshotInfo } from "@forkd/contract";
import {
  ensureInitramfs,
  ensureKernel,
  ensureRootfs,
  ImageLease,
  importKernel,
  importRootfs,
  readRecipe,
  resolveSteps,
  type LayerStep,
  type Recipe,
} from "@forkd/image";
import type { Draft, StoredSnapshot } from "@forkd/store";
import { agentPath, imagesDir } from "../config.ts";
import type { Context } from "../context.ts";
import { withReplyDeadline } from "../guest/deadline.ts";
import { serviceNames } from "../guest/service-names.ts";
import { bake, type BakePlan, type Progress } from "../launch/bake.ts";
import { prepareChild, startChild } from "../launch/child.ts";
import { runSteps } from "../launch/steps/run-steps.ts";
import { noNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import { describeSnapshot } from "../snapshots/describe.ts";
import { dependentsOf, orphanRemedy } from "../snapshots/lineage.ts";
import { hazardProblem } from "../verify/requirement.ts";
import { verifySnapshot } from "../verify/verify-snapshot.ts";

type BuildContext = Context & { onProgress: Progress };

const defaults = { memoryMib: 512, vcpus: 1, diskMib: 2048 };

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
  const { plan, ...over } = await planFor(runtime, draft, request, { signal, onProgress, lease });
  using _room = runtime.admission.admit({
    what: `build "${request.tag}"`,
    n: 1,
    memoryMib: plan.memoryMib,
    // The guest's memory is a file that is written completely and read once.
    expectMib: plan.memoryMib,
    writesMib: plan.memoryMib,
    diskMib: 0,
    isSandbox: false,
  });
  const isFresh = request.no_cache;
  const layers = await runSteps(runtime, draft, { plan, ...over }, { signal, onProgress, lease, isFresh });
  const facts = await bake(runtime, draft, plan, { layers, signal, onProgress });
  onProgress("commit", "writing and hashing the snapshot");
  const sealed = await draft.seal(facts, { signal });
  onProgress("check", "forking one child to see it answer");
  await answers(runtime, sealed, signal);
  // A branch may have been taken during the build.
  if (request.force) await refuseOrphans(runtime, request.tag);
  const snapshot = await draft.publish();
  await runtime.pool.drop(request.tag);
  runtime.events.snapshot("snapshot.ready", request.tag, { status: "ready" });
  log.info({ event: "snapshot.create", outcome: "ok", tag: request.tag, durationMs: Date.now() - startedAt });
  await verifyRequired(runtime, snapshot, { ...context, signal });
  return describeSnapshot(runtime, snapshot);
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

/** Layers over a snapshot become unusable when another one takes its tag. */
async function refuseOrphans(
  runtime: Pick<Runtime, "branches" | "registry" | "store">,
  tag: string,
): Promise<void> {
  const dependents = await dependentsOf(runtime, tag);
  if (dependents.length === 0) return;
  throw new AppError(
    "snapshot_in_use",
    `Cannot replace snapshot "${tag}": ${dependents.join(", ")} would be orphaned`,
    { details: { tag, dependents }, remedy: orphanRemedy(tag, dependents) },
  );
}

/** Forks one child: a snapshot whose child does not answer gets no tag. */
async function answers(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  signal: AbortSignal | undefined,
): Promise<void> {
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
}

/** The images of a build, and the layers to make over its root file system, which the draft gets. */
async function planFor(
  runtime: Pick<Runtime, "config" | "network">,
  draft: Draft,
  request: CreateSnapshotRequest,
  context: Omit<BuildContext, "log"> & { lease: ImageLease },
): Promise<{ plan: BakePlan; steps: LayerStep[]; instance: string }> {
  const { config, network } = runtime;
  const { caBundle } = network;
  const imageDir = imagesDir(config);
  const recipe = request.recipe === undefined ? undefined : await readRecipe(request.recipe);
  if (recipe) checkNetwork(network, recipe);
  const diskMib = request.disk_mib ?? defaults.diskMib;
  const pin = (path: string) => draft.share(draft.path("rootfs"), path);
  const rootfs = recipe
    ? await ensureRootfs(imageDir, recipe, { ...context, isFresh: request.no_cache, pin })
    : await importRootfs(imageDir, request.rootfs ?? "", { diskMib }, context);
  if (!recipe) await pin(rootfs.path);
  const kernel =
    request.kernel === undefined
      ? await ensureKernel(imageDir, context)
      : await importKernel(imageDir, request.kernel, { modulesDir: request.modules }, context);
  const initramfs = await ensureInitramfs(
    imageDir,
    { agentPath: agentPath(config), modulesDir: kernel.modulesDir },
    { ...context, caBundle },
  );
  const trust = caBundle ? guestTrustVariables() : {};
  const { layers, state } = resolveSteps(recipe?.steps ?? [], { env: recipe?.spec.env ?? {} });
  const plan = {
    rootfs: { ...rootfs, bytes: (await stat(draft.path("rootfs"))).size },
    kernel,
    initramfs,
    memoryMib: request.memory_mib ?? recipe?.spec.memory_mib ?? defaults.memoryMib,
    vcpus: request.vcpus ?? recipe?.spec.vcpus ?? defaults.vcpus,
    env: { ...trust, ...state.env, ...request.env },
    trust,
    workdir: state.workdir,
    user: state.user,
    run: request.run ?? recipe?.spec.run ?? [],
    services: servicesOf(recipe?.spec.services ?? []),
    languages: languagesOf(request.languages ?? recipe?.spec.languages ?? {}),
    network: recipe?.spec.network,
    recipe: recipe && { name: basename(recipe.dir), digest: recipe.digest },
    require: recipe?.spec.require,
    bootTimeoutMs:
      request.boot_wait_secs === undefined ? config.bootTimeoutMs : request.boot_wait_secs * 1000,
  };
  return { plan, steps: layers, instance: rootfs.instance };
}

/** Rules that cannot be used would fail every fork. Throws `invalid_recipe`. */
function checkNetwork(network: Runtime["network"], { dir, spec }: Recipe): void {
  const { rules = [] } = spec.network ?? {};
  try {
    network.check({ ...noNetwork, rules });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError("invalid_recipe", `Cannot use the recipe "${dir}": network.rules: ${error.message}`, {
      details: { ...error.details },
      remedy: error.remedy,
      cause: error,
    });
  }
}

function servicesOf(given: Recipe["spec"]["services"]): BakePlan["services"] {
  const names = serviceNames(given);
  return given.map(({ argv, ready }, index) => ({ name: names[index] ?? "", argv, port: ready?.port }));
}

/** Without the languages that are not asked for. */
function languagesOf(given: {
  [language in Language]?: { warmup: string; rehearse?: string | undefined } | undefined;
}): BakePlan["languages"] {
  const languages: BakePlan["languages"] = {};
  for (const language of Object.keys(given) as Language[]) {
    const settings = given[language];
    if (settings) languages[language] = settings;
  }
  return languages;
}
