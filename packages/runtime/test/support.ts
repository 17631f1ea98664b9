/** A runtime over a fake engine, with a snapshot of a few bytes. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import type { ForkRequest } from "@forkd/contract";
import { nullLogger } from "@forkd/base";
import { agentProtocolVersion, createOverlay, shapeOf } from "@forkd/machine";
import type { ManifestFacts, Store } from "@forkd/store";
import { defaultRuntimeConfig, type QuotaSettings, type RuntimeConfig } from "../src/config.ts";
import { ImageRefs } from "../src/snapshots/image-refs.ts";
import { createRuntime, openStore } from "../src/open-runtime.ts";
import type { Runtime } from "../src/runtime.ts";
import { FakeEngine } from "./fakes/engine.ts";

export { rejectsWith, until } from "@forkd/test-support";

// From dist/test.
export const guestDir = fileURLToPath(new URL("../../../../guest", import.meta.url));
export const context = { log: nullLogger() };
export const tscKhz = 2_000_000;

/** for hosts that are very slow */
const patienceMs = 120_000;

export function facts(env: Record<string, string> = {}): ManifestFacts {
  const shape = shapeOf({ vcpus: 1, memoryMib: 1, accelerator: "tcg" });
  return {
    forkd_version: "0.1.0",
    created_at_unix: 1_700_000_000,
    agent_protocol: agentProtocolVersion,
    engine: { name: "fake", version: "1.2.9" },
    machine: {
      type: shape.machineType,
      cpu: shape.cpu,
      accelerator: "tcg",
      vcpus: 1,
      memory_mib: 1,
      devices: [...shape.devices],
      tsc_khz: tscKhz,
    },
    kernel: { digest: "k", version: "6.12", command_line: "quiet" },
    initramfs: { digest: "i" },
    rootfs: { digest: "r" },
    env,
    kernels: [],
    origin: { kind: "build" },
  };
}

/** Settings of a test; the rest has defaults. */
export type TestSettings = Partial<Omit<RuntimeConfig, "quota">> & { quota?: Partial<QuotaSettings> };

export type TestRuntime = { runtime: Runtime; engine: FakeEngine; config: RuntimeConfig };

export async function openTestRuntime(t: TestContext, settings: TestSettings = {}): Promise<TestRuntime> {
  const root = await mkdtemp(join(tmpdir(), "forkd-rt-"));
  const config: RuntimeConfig = {
    ...defaultRuntimeConfig(),
    dataDir: join(root, "data"),
    runtimeDir: join(root, "run"),
    guestDir,
    accelerator: "tcg",
    qemuPath: "none",
    poolMemoryPercent: 0,
    compactDepth: 0,
    forkParallelism: 1,
    memoryCacheMib: 1024,
    blobCacheMib: 1024,
    onStop: "stop",
    bootTimeoutMs: patienceMs,
    readyTimeoutMs: patienceMs,
    ...settings,
    quota: { ...defaultRuntimeConfig().quota, ...settings.quota },
  };
  await mkdir(join(config.dataDir, "sandboxes"), { recursive: true });
  await mkdir(config.runtimeDir);
  const engine = new FakeEngine();
  const images = new ImageRefs();
  const store = await openStore(config, images, nullLogger());
  const accelerator = { accelerator: "tcg", reason: "a test" } as const;
  const runtime = createRuntime({ config, log: nullLogger(), engine, store, accelerator, tscKhz, images });
  t.after(async () => {
    await runtime[Symbol.asyncDispose]();
    // A store that is not closed may still write to its cache.
    await rm(root, { recursive: true, force: true, maxRetries: 3 });
  });
  return { runtime, engine, config };
}

export async function addSnapshot(store: Store, tag: string, given: ManifestFacts = facts()): Promise<void> {
  await using draft = await store.draft(tag, { replace: true });
  await writeFile(draft.path("memory"), Buffer.alloc(1 << 20, "memory"));
  await writeFile(draft.path("devices"), "devices");
  await createOverlay(draft.diskPath(0), 4096);
  await writeFile(draft.path("rootfs"), Buffer.alloc(4096, 1));
  await writeFile(draft.path("sbom"), "{}");
  await draft.commit(given);
}

/** The same with a snapshot "py". */
export async function forkableRuntime(t: TestContext, settings: TestSettings = {}): Promise<TestRuntime> {
  const test = await openTestRuntime(t, settings);
  await addSnapshot(test.runtime.store, "py");
  return test;
}

export function forkRequest(some: Partial<ForkRequest> = {}): ForkRequest {
  return {
    snapshot_tag: "py",
    n: 1,
    labels: {},
    env: {},
    vary: [],
    prewarm: false,
    live_fork: false,
    ...some,
  };
}

/** Fails unless these sandboxes, and no others, have anything on the host. */
export async function assertOnly({ runtime, config }: TestRuntime, ids: readonly string[]): Promise<void> {
  const expected = [...ids].sort();
  assert.deepEqual((await readdir(join(config.dataDir, "sandboxes"))).sort(), expected, "directories");
  assert.deepEqual((await readdir(config.runtimeDir)).sort(), expected, "socket directories");
  assert.deepEqual([...runtime.places].sort(), expected, "claimed ids");
  assert.equal(runtime.admission.pending, 0, "pending forks");
}
