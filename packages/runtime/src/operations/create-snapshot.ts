/** A snapshot from a recipe, or from a root file system (and kernel) that the user brings. */
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import type { CreateSnapshotRequest, Language, SnapshotInfo } from "@forkd/contract";
import {
  ensureInitramfs,
  ensureKernel,
  ensureRootfs,
  importKernel,
  importRootfs,
  readRecipe,
} from "@forkd/image";
import { bake, type BakePlan, type Progress } from "../bake.ts";
import type { Context } from "../context.ts";
import { prepareChild, startChild } from "../launch.ts";
import { agentPath } from "../config.ts";
import type { Runtime } from "../open-runtime.ts";
import { describeSnapshot } from "../snapshot-info.ts";

type BuildContext = Context & { onProgress: Progress };

const defaults = { memoryMib: 512, vcpus: 1, diskMib: 2048 };

export async function createSnapshot(
  runtime: Runtime,
  request: CreateSnapshotRequest,
  { signal, log, onProgress }: BuildContext,
): Promise<SnapshotInfo> {
  const startedAt = Date.now();
  await using draft = await runtime.store.draft(request.tag, { replace: request.force });
  const plan = await planFor(runtime, request, { signal, onProgress });
  const facts = await bake(runtime, draft, plan, { signal, onProgress });
  onProgress("commit", "writing and hashing the snapshot");
  if (request.force) await runtime.pool.drop(request.tag);
  await draft.commit(facts, signal);
  const snapshot = await runtime.store.get(request.tag);
  onProgress("check", "forking one child to see it answer");
  try {
    await runtime.store.verify(snapshot);
    const child = await prepareChild(runtime, snapshot, signal);
    await using sandbox = await startChild(runtime, child, {
      index: 0,
      env: {},
      values: undefined,
      labels: {},
      expiresAt: undefined,
      askedAt: performance.now(),
      pooled: false,
    });
    await sandbox.agent.ping();
  } catch (error) {
    await runtime.store.remove(request.tag);
    throw error;
  }
  log.info({ event: "snapshot.create", outcome: "ok", tag: request.tag, durationMs: Date.now() - startedAt });
  return describeSnapshot(runtime, snapshot);
}

async function planFor(
  runtime: Runtime,
  request: CreateSnapshotRequest,
  context: Omit<BuildContext, "log">,
): Promise<BakePlan> {
  const { imageDir, config } = runtime;
  const recipe = request.recipe === undefined ? undefined : await readRecipe(request.recipe);
  const diskMib = request.disk_mib ?? defaults.diskMib;
  const rootfs = recipe
    ? await ensureRootfs(imageDir, recipe, context)
    : await importRootfs(imageDir, request.rootfs ?? "", { diskMib }, context);
  const kernel =
    request.kernel === undefined
      ? await ensureKernel(imageDir, context)
      : await importKernel(imageDir, request.kernel, { modulesDir: request.modules }, context);
  const initramfs = await ensureInitramfs(
    imageDir,
    { agentPath: agentPath(config), modulesDir: kernel.modulesDir },
    context,
  );
  return {
    rootfs: { path: rootfs.path, digest: rootfs.digest, bytes: (await stat(rootfs.path)).size },
    kernel,
    initramfs,
    memoryMib: request.memory_mib ?? recipe?.spec.memory_mib ?? defaults.memoryMib,
    vcpus: request.vcpus ?? recipe?.spec.vcpus ?? defaults.vcpus,
    env: { ...recipe?.spec.env, ...request.env },
    run: request.run ?? recipe?.spec.run ?? [],
    services: (recipe?.spec.services ?? []).map(({ argv, ready }) => ({ argv, port: ready?.port })),
    languages: languagesOf(request.languages ?? recipe?.spec.languages ?? {}),
    recipe: recipe && { name: basename(recipe.dir), digest: recipe.digest },
    bootTimeoutMs:
      request.boot_wait_secs === undefined ? config.bootTimeoutMs : request.boot_wait_secs * 1000,
  };
}

/** Without the languages that are not asked for. */
function languagesOf(given: {
  [language in Language]?: { warmup: string } | undefined;
}): BakePlan["languages"] {
  const languages: BakePlan["languages"] = {};
  for (const language of Object.keys(given) as Language[]) {
    const settings = given[language];
    if (settings) languages[language] = settings;
  }
  return languages;
}
