/** Requests and recipes → what a build does. */
import { guestTrustVariables } from "@forkd/egress";
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import { advice, AppError, type CreateSnapshotRequest, type Language } from "@forkd/contract";
import {
  ensureInitramfs,
  ensureKernel,
  ensureRootfs,
  importKernel,
  importRootfs,
  resolveSteps,
  type ImageLease,
  type LayerStep,
  type Recipe,
} from "@forkd/image";
import type { Draft, StoredSnapshot } from "@forkd/store";
import { agentPath, imagesDir } from "../config.ts";
import { serviceNames } from "../guest/service-names.ts";
import { noNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { BakePlan } from "./bake.ts";
import type { ExtendPlan } from "./steps/extend.ts";
import type { Progress } from "./warm-parent.ts";

const defaults = { memoryMib: 512, vcpus: 1, diskMib: 2048 };

type PlanContext = { signal: AbortSignal; onProgress: Progress; lease: ImageLease };

/** The images of a build, and the layers to make over its root file system, which the draft gets. */
export async function planBuild(
  runtime: Pick<Runtime, "config" | "network">,
  draft: Draft,
  { request, recipe }: { request: CreateSnapshotRequest; recipe: Recipe | undefined },
  context: PlanContext,
): Promise<{ plan: BakePlan; steps: LayerStep[]; instance: string }> {
  const { config, network } = runtime;
  const { caBundle } = network;
  const imageDir = imagesDir(config);
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

/** Throws `invalid_recipe` if request or recipe ask for another machine than that of the parent. */
export function planExtension(
  parent: StoredSnapshot,
  { request, recipe }: { request: CreateSnapshotRequest; recipe: Recipe },
): ExtendPlan {
  const { spec } = recipe;
  const { machine, env } = parent.manifest;
  const asked = {
    memory_mib: request.memory_mib ?? spec.memory_mib ?? machine.memory_mib,
    vcpus: request.vcpus ?? spec.vcpus ?? machine.vcpus,
  };
  for (const key of ["memory_mib", "vcpus"] as const) {
    if (asked[key] === machine[key]) continue;
    const message = `Cannot use the recipe "${recipe.dir}": ${key}: is ${asked[key]}, but "${parent.tag}" has ${machine[key]}, which a recipe that extends it keeps`;
    throw new AppError("invalid_recipe", message, { remedy: advice(`Leave ${key} out.`) });
  }
  const other = (["kernel", "modules", "disk_mib"] as const).find((key) => request[key] !== undefined);
  if (other !== undefined)
    throw new AppError(
      "invalid_request",
      `Invalid request: ${other}: the recipe extends "${parent.tag}" and keeps its ${other}`,
    );
  const { layers, state } = resolveSteps(recipe.steps, { env: { ...env, ...spec.env } });
  return {
    parent,
    steps: layers,
    env: { ...state.env, ...request.env },
    workdir: state.workdir,
    user: state.user,
    run: request.run ?? spec.run,
    services: servicesOf(spec.services),
    languages: languagesOf(request.languages ?? spec.languages),
    recipe: { name: basename(recipe.dir), digest: recipe.digest },
    require: spec.require,
    network: spec.network,
  };
}

/** Rules that cannot be used would fail every fork. Throws `invalid_recipe`. */
export function checkNetwork(network: Runtime["network"], { dir, spec }: Recipe): void {
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
