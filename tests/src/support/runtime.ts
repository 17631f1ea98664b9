/** A runtime in this process with its own directories, for tests of the layers below the daemon. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { nullLogger, Scope } from "@forkd/base";
import { isSandbox } from "@forkd/contract";
import { defaultRuntimeConfig, fork, openRuntime, type Runtime } from "@forkd/runtime";
import { linkSnapshots } from "./data-dir.ts";
import { guestDir } from "./places.ts";
import { testDir } from "./test-dir.ts";

const log = nullLogger();

export type TestRuntime = AsyncDisposable & { runtime: Runtime; dir: string };

export async function openTestRuntime(tags: readonly string[]): Promise<TestRuntime> {
  await using scope = new Scope();
  const { path: dir } = scope.use(await testDir());
  await linkSnapshots(join(dir, "data"), tags);
  const runtime = scope.use(
    await openRuntime(
      {
        ...defaultRuntimeConfig(),
        dataDir: join(dir, "data"),
        runtimeDir: join(dir, "run"),
        guestDir,
        poolMemoryPercent: 0,
        forkParallelism: 2,
        branchConcurrency: 8,
        memoryCacheMib: 1024,
        blobCacheMib: 1024,
      },
      log,
    ),
  );
  const kept = scope.keep();
  return { runtime, dir, [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose]() };
}

export async function forkChild(
  runtime: Runtime,
  tag = "tiny",
): Promise<ReturnType<Runtime["registry"]["get"]>> {
  const request = {
    snapshot_tag: tag,
    n: 1,
    labels: {},
    env: {},
    vary: [],
    prewarm: false,
    live_fork: false,
  };
  const [entry] = await fork(runtime, request, { log });
  assert.ok(entry && isSandbox(entry));
  return runtime.registry.get(entry.id);
}
