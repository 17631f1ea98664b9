/**
 * npm run prove:boots -- --boots 200 --vcpus 1,2: boots the guest of `tiny` again and again as a build does,
 * up to the answer to AFTER_FORK, and reports boots that had to be restarted or failed. Fails if any boot
 * failed.
 */
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createLogger, removeTree } from "@forkd/base";
import { toAppError } from "@forkd/contract";
import { createSnapshot, defaultRuntimeConfig, openRuntime, type Runtime } from "@forkd/runtime";
import { linkSnapshots } from "./support/data-dir.ts";
import { guestDir, testPrefix } from "./support/places.ts";

const bootTimeoutSecs = 60;

type Outcome = { vcpus: number; seconds: number; restarted: boolean; failure?: string };

/** One build that is cancelled as soon as the parent has answered. */
async function bootOnce(runtime: Runtime, rootfs: string, vcpus: number): Promise<Outcome> {
  const startedAt = performance.now();
  const booted = new AbortController();
  let bootedAt: number | undefined;
  let boots = 0;
  const onProgress = (step: string): void => {
    if (step === "boot") boots++;
    if (step !== "save") return;
    bootedAt = performance.now();
    booted.abort(new Error("booted"));
  };
  const request = { tag: "boots", rootfs, memory_mib: 96, disk_mib: 64, vcpus, force: true };
  const result = await createSnapshot(
    runtime,
    { ...request, boot_wait_secs: bootTimeoutSecs },
    { log: runtime.log, onProgress, signal: booted.signal },
  ).catch((error: unknown) => toAppError(error));
  const seconds = ((bootedAt ?? performance.now()) - startedAt) / 1000;
  const failure = bootedAt === undefined && result instanceof Error ? { failure: result.message } : {};
  return { vcpus, seconds, restarted: boots > 1, ...failure };
}

const { values } = parseArgs({
  options: {
    boots: { type: "string", default: "200" },
    vcpus: { type: "string", default: "1,2" },
  },
});
const boots = Number(values.boots);
const vcpus = values.vcpus.split(",").map(Number);
if (!(boots > 0) || vcpus.some((each) => !(each > 0))) {
  console.error("usage: npm run prove:boots -- [--boots N] [--vcpus 1,2]");
  process.exit(2);
}
const dir = await mkdtemp(testPrefix);
const outcomes: Outcome[] = [];
try {
  const dataDir = join(dir, "data");
  await linkSnapshots(dataDir, ["tiny"]);
  const config = {
    ...defaultRuntimeConfig(),
    dataDir,
    runtimeDir: join(dir, "run"),
    guestDir,
    poolMemoryPercent: 0,
  };
  await using runtime = await openRuntime(config, createLogger({ level: "warn" }));
  const rootfs = join(dataDir, "snapshots/tiny/rootfs.ext4");
  for (let nth = 1; nth <= boots; nth++) {
    const outcome = await bootOnce(runtime, rootfs, vcpus[(nth - 1) % vcpus.length] ?? 1);
    outcomes.push(outcome);
    const { seconds, restarted, failure } = outcome;
    const how = failure ?? (restarted ? "restarted" : "ok");
    console.error(`boot ${nth}/${boots}  ${outcome.vcpus} vCPU  ${seconds.toFixed(1)} s  ${how}`);
  }
} finally {
  await removeTree(dir);
}
const failed = outcomes.filter(({ failure }) => failure !== undefined).length;
const restarted = outcomes.filter((each) => each.restarted).length;
const longest = Math.max(...outcomes.map(({ seconds }) => seconds)).toFixed(1);
console.log(`${outcomes.length} boots: ${failed} failed, ${restarted} restarted, longest ${longest} s`);
process.exitCode = failed > 0 ? 1 : 0;
