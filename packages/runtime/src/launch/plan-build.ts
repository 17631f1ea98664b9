/** Requests and recipes → what a build does. */
import { guestTrustVariables } from "@forkd/egress";
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import { advice, AppError, type CreateSnapshotRequest, type Language } from "@forkd/contract";
import {
  ensureImageRootfs,
  ensureInitramfs,
  ensureKernel,
  ensureRootfs,
  importKernel,
  importRootfs,
  resolveSteps,
  type BaseImage,
  type BuildContext as ImageContext,
  type ImageLease,
  type LayerStep,
  type Recipe,
  type Rootfs,
  type StepState,
} from "@forkd/image";
import { findCredentials, Registries } from "@forkd/registry";
import type { Draft, StoredSnapshot } from "@forkd/store";
import { agentPath, imagesDir } from "../config.ts";
import type { CommandDefaults } from "../guest/command-defaults.ts";
import { noNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { BakePlan } from "./bake.ts";
import { planServices, type AskedProgram } from "./services.ts";
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
  const pin = (path: string) => draft.share(draft.path("rootfs"), path);
  const { caFile, mirrors } = config.hub;
  using registries = new Registries({ credentials: findCredentials, caFile, mirrors });
  const rootfs = await rootfsFor(imageDir, { request, recipe, pin }, { ...context, registries });
  const { image } = rootfs;
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
  const start = stateOf(image, trust);
  const { layers, state } = resolveSteps(recipe?.steps ?? [], {
    ...start,
    env: { ...start.env, ...recipe?.spec.env },
  });
  const plan: BakePlan = {
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
    ...(image && { image: imageFacts(image) }),
    defaults: defaultsOf(state),
    services: planServices(withPrograms(recipe?.spec.services ?? startedService(request), image)),
    languages: languagesOf(request.languages ?? recipe?.spec.languages ?? {}),
    network: recipe?.spec.network,
    recipe: recipe && { name: basename(recipe.dir), digest: recipe.digest },
    require: recipe?.spec.require,
    bootTimeoutMs:
      request.boot_wait_secs === undefined ? config.bootTimeoutMs : request.boot_wait_secs * 1000,
  };
  return { plan, steps: layers, instance: rootfs.instance };
}

/** The root file system, linked by `pin` before another build can replace it. */
async function rootfsFor(
  imageDir: string,
  input: { request: CreateSnapshotRequest; recipe: Recipe | undefined; pin: (path: string) => Promise<void> },
  context: ImageContext,
): Promise<Rootfs> {
  const { request, recipe, pin } = input;
  const { no_cache: isFresh, disk_mib: diskMib, image, rootfs = "" } = request;
  if (recipe) return await ensureRootfs(imageDir, recipe, { ...context, isFresh, pin });
  const made =
    image === undefined
      ? await importRootfs(imageDir, rootfs, { diskMib: diskMib ?? defaults.diskMib }, context)
      : await ensureImageRootfs(imageDir, image, { diskMib, isFresh }, context);
  await pin(made.path);
  return made;
}

/** What the steps of a recipe begin with. Variables of an image do not replace those of the trust. */
function stateOf(image: BaseImage | undefined, trust: Readonly<Record<string, string>>): StepState {
  if (!image) return { env: {} };
  const { env, workdir, user } = image.config;
  const own = Object.entries(env).filter(([name]) => !Object.hasOwn(trust, name));
  return { env: Object.fromEntries(own), workdir, user: user === "" ? undefined : user };
}

/** Undefined if neither the image nor a step has set one. */
function defaultsOf({ workdir, user }: StepState): CommandDefaults | undefined {
  if (workdir === undefined && user === undefined) return undefined;
  return { ...(workdir !== undefined && { cwd: workdir }), ...(user !== undefined && { user }) };
}

function imageFacts({ reference, digest, config }: BaseImage): BakePlan["image"] {
  const { entrypoint, cmd, ports, volumes, labels } = config;
  return { reference, digest, entrypoint, cmd, ports, volumes, labels };
}

/** Throws `invalid_recipe` if request or recipe ask for another machine than that of the parent. */
export function planExtension(
  parent: StoredSnapshot,
  { request, recipe }: { request: CreateSnapshotRequest; recipe: Recipe },
): ExtendPlan {
  const { spec } = recipe;
  const { machine, env, defaults: given } = parent.manifest;
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
  const { layers, state } = resolveSteps(recipe.steps, {
    env: { ...env, ...spec.env },
    workdir: given?.cwd,
    user: given?.user,
  });
  return {
    parent,
    steps: layers,
    env: { ...state.env, ...request.env },
    workdir: state.workdir,
    user: state.user,
    run: request.run ?? spec.run,
    defaults: defaultsOf(state),
    // An image whose entrypoint could be meant is not there.
    services: withPrograms(spec.services, undefined),
    languages: languagesOf(request.languages ?? spec.languages),
    recipeDir: recipe.dir,
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

type AskedService = Recipe["spec"]["services"][number];

/** ENTRYPOINT and CMD of an image, if the request starts them. */
function startedService({ start }: CreateSnapshotRequest): AskedService[] {
  if (!start) return [];
  return [{ entrypoint: true, ...(start.ready_port !== undefined && { ready: { port: start.ready_port } }) }];
}

/** Services that start the image have its program. */
function withPrograms(given: readonly AskedService[], image: BaseImage | undefined): AskedProgram[] {
  return given.map(({ argv, ...rest }) => ({ ...rest, argv: argv ?? entrypointOf(image) }));
}

/** Throws `invalid_image` if the image names no program. */
function entrypointOf(image: BaseImage | undefined): string[] {
  const argv = image ? [...image.config.entrypoint, ...image.config.cmd] : [];
  if (argv.length > 0) return argv;
  const name = image?.reference ?? "";
  throw new AppError("invalid_image", `Cannot start the image "${name}": it has neither ENTRYPOINT nor CMD`, {
    remedy: advice("Build it without starting it, or name a service in a recipe."),
  });
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
