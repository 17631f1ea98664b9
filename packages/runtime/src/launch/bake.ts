/**
 * The parent: a machine booted from images, warmed, and saved into a draft.
 *
 * It is killed while it is paused: its memory file is mapped shared, and one instruction after the device
 * state was saved would make memory and devices two different instants.
 */
import { randomBytes } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError, errorMessage, type HazardId, type Language } from "@forkd/contract";
import {
  agentProtocolVersion,
  makeDirectory,
  writeFile as writeGuestFile,
  type AgentClient,
  type DiskLayer,
  type MachineShape,
} from "@forkd/machine";
import type { Draft, ManifestFacts } from "@forkd/store";
import { shortenDisk } from "../capture/disk-chain.ts";
import { withReplyDeadline } from "../guest/deadline.ts";
import type { RuntimeConfig } from "../config.ts";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";
import { bootParent, orDeath, type BootPlan } from "./boot-parent.ts";
import { runInGuest } from "./run-in-guest.ts";
import { Services, type ServiceSpec } from "./services.ts";
import { commandName, startFailure, stepFailure, outputTail } from "./step-output.ts";
import { recordKernel, runWarmup, startKernel, writeWarmup, type WarmKernel } from "./warm-kernel.ts";

export type BakePlan = BootPlan & {
  rootfs: { path: string; digest: string; bytes: number };
  kernel: { digest: string; version: string };
  initramfs: { digest: string };
  env: Record<string, string>;
  /** variables by which programs trust the certificates of the installation */
  trust: Readonly<Record<string, string>>;
  /** where and as whom `run` and the services run; default: / and root */
  workdir?: string | undefined;
  user?: string | undefined;
  run: readonly (readonly string[])[];
  services: readonly ServiceSpec[];
  languages: Partial<Record<Language, { warmup: string; rehearse?: string | undefined }>>;
  recipe?: { name: string; digest: string } | undefined;
  /** hazards whose check the snapshot requires */
  require?: readonly HazardId[] | undefined;
  /** of the children; the parent has none */
  network?: ManifestFacts["network"];
};

export type Progress = (step: string, message: string) => void;

/** directory of the kernels in the guest */
const guestKernelDir = "/usr/lib/forkd/kernels";
const interpreters: Record<Language, { command: readonly [string, ...string[]]; main: string }> = {
  python: { command: ["python3"], main: "kernel.py" },
  node: { command: ["node", "--no-force-async-hooks-checks"], main: "kernel.cjs" },
};
/**
 * Does what a child's first eval does. gc.freeze() keeps Python's garbage collector from writing to every
 * object of the parent (measured with numpy: 5.7 MiB per child and collection, 0.5 MiB with it).
 */
const firstEval: Record<Language, string> = {
  python: "import gc; gc.freeze(); del gc\n[0.5, 'a']",
  node: "[0.5, 'a']",
};
const settleMs = 3000;
const runTimeoutMs = 30 * 60_000;
const warmupTimeoutMs = 10 * 60_000;
/** A child rehearses before it waits ready, so that a long rehearsal is a mistake. */
const rehearsalTimeoutMs = 30_000;
const maxTracebackChars = 4000;

/** The draft has the root file system. */
export async function bake(
  runtime: Runtime,
  draft: Draft,
  plan: BakePlan,
  {
    layers = 0,
    signal,
    onProgress,
  }: {
    /** number of disk layers that the draft has; default: none */
    layers?: number;
    signal?: AbortSignal | undefined;
    onProgress: Progress;
  },
): Promise<ManifestFacts> {
  const files = {
    memory: draft.path("memory"),
    disk: { overlay: draft.diskPath(layers), backing: backingOf(draft, layers), bytes: plan.rootfs.bytes },
  };
  await using parent = await bootParent(runtime, files, plan, { signal, onProgress });
  const { machine, agent, shape, commandLine } = parent;
  const { env, user, workdir } = plan;
  if (workdir !== undefined) await makeDirectory(agent, workdir, { recursive: true, mode: 0o755 });
  const services = new Services(agent, { env, user, cwd: workdir });
  const watched = <T>(work: Promise<T>): Promise<T> => orDeath(machine, services.orFailure(work));
  const kernels = await watched(warm({ config: runtime.config, agent, services, plan, onProgress }));
  onProgress("save", "saving memory and device state");
  await watched(agent.sync());
  // Work that the guest has deferred (write-back, timers, frees) would otherwise be repeated in every child.
  // Nothing announces its end.
  await watched(new Promise((resolve) => setTimeout(resolve, settleMs)));
  await orDeath(machine, services.check());
  await services.leave();
  const records = kernels.map(recordKernel);
  const paused = await machine.pause();
  await paused.saveDevices(draft.path("devices"));
  await machine[Symbol.asyncDispose]();
  await shortenDisk(draft, layers + 1, signal);
  return manifestFacts(runtime, plan, { shape, commandLine, kernels: records });
}

/** The root file system and the disk layers of a draft, nearest first. */
export function backingOf(draft: Draft, layers: number): DiskLayer[] {
  const disks = Array.from({ length: layers }, (_, index) => draft.diskPath(layers - 1 - index));
  return [
    ...disks.map((path): DiskLayer => ({ path, format: "qcow2" })),
    { path: draft.path("rootfs"), format: "raw" },
  ];
}

function manifestFacts(
  { engine, host, accelerator, tscKhz }: Pick<Runtime, "accelerator" | "engine" | "host" | "tscKhz">,
  plan: BakePlan,
  parent: { shape: MachineShape; commandLine: string; kernels: ManifestFacts["kernels"] },
): ManifestFacts {
  return {
    forkd_version: forkdVersion,
    created_at_unix: Math.floor(Date.now() / 1000),
    agent_protocol: agentProtocolVersion,
    engine: { name: engine.name, version: engine.version },
    machine: {
      type: parent.shape.machineType,
      cpu: host.cpu,
      accelerator: accelerator.accelerator,
      vcpus: plan.vcpus,
      memory_mib: plan.memoryMib,
      devices: [...parent.shape.devices],
      tsc_khz: tscKhz,
    },
    kernel: { digest: plan.kernel.digest, version: plan.kernel.version, command_line: parent.commandLine },
    initramfs: { digest: plan.initramfs.digest },
    rootfs: { digest: plan.rootfs.digest },
    ...(plan.recipe && { recipe: plan.recipe }),
    env: plan.env,
    ...(plan.require && { require: [...plan.require] }),
    ...(plan.network && { network: plan.network }),
    kernels: parent.kernels,
    origin: { kind: "build" },
  };
}

/** A parent that runs, and what is to be done in it. */
type RunningParent = {
  config: RuntimeConfig;
  agent: AgentClient;
  services: Services;
  plan: BakePlan;
  onProgress: Progress;
};

async function warm(parent: RunningParent): Promise<WarmKernel[]> {
  const { agent, services, plan, onProgress } = parent;
  for (const argv of plan.run) {
    onProgress("run", argv.join(" "));
    const where = { cwd: plan.workdir, user: plan.user };
    const command = { argv, env: plan.env, timeoutMs: runTimeoutMs, ...where };
    const result = await runInGuest(agent, command).catch((error: unknown): never => {
      throw startFailure(argv, error);
    });
    if (result.exitCode !== 0) {
      const text = `Cannot run "${commandName(argv)}" in the parent: exit code ${result.exitCode}`;
      throw stepFailure(text, result.output, { details: { argv: [...argv], exit_code: result.exitCode } });
    }
  }
  for (const service of plan.services) {
    onProgress("service", service.argv.join(" "));
    await services.start(service);
  }
  const kernels: WarmKernel[] = [];
  for (const language of Object.keys(plan.languages) as Language[]) {
    kernels.push(await warmKernel(parent, language));
  }
  return kernels;
}

async function warmKernel(parent: RunningParent, language: Language): Promise<WarmKernel> {
  const { agent, plan, onProgress } = parent;
  const { command, main } = interpreters[language];
  const dir = `${guestKernelDir}/${language}`;
  await copyKernel(parent, language, dir);
  onProgress("warm-up", `starting the ${language} interpreter`);
  const argv = [...command, `${dir}/${main}`];
  let kernel: WarmKernel;
  try {
    kernel = await startKernel(agent, { language, argv, env: plan.env });
  } catch (error) {
    throw new AppError("invalid_recipe", `Cannot start the ${language} interpreter: ${errorMessage(error)}`, {
      details: error instanceof AppError ? { ...error.details } : {},
      remedy: advice(`Check that the image has ${command[0]}.`),
      cause: error,
    });
  }
  const warmup = plan.languages[language]?.warmup ?? "";
  await writeWarmup(agent, argv, warmup);
  if (warmup !== "") {
    onProgress("warm-up", `running the ${language} warm-up`);
    const failure = await runWarmup(kernel.client, warmup);
    if (failure) {
      const { error, traceback, output } = failure;
      throw new AppError("invalid_recipe", `The ${language} warm-up failed: ${error}`, {
        details: { traceback, output: [output, traceback].filter((part) => part !== "").join("\n") },
      });
    }
  }
  // Do once what every child does first, so that the pages it needs are in memory.
  await withReplyDeadline(
    agent,
    "the interpreter is silent",
    kernel.client.afterFork(randomBytes(64), plan.env),
  );
  const rehearsal = plan.languages[language]?.rehearse;
  if (rehearsal !== undefined) await tryRehearsal(kernel, rehearsal);
  await kernel.client.evaluate({ code: firstEval[language], context: "default", timeoutMs: warmupTimeoutMs });
  await kernel.client.warmed(rehearsal);
  return kernel;
}

/** Children ignore a rehearsal that fails, so that a mistake in it is reported here. */
async function tryRehearsal({ client, language }: WarmKernel, code: string): Promise<void> {
  const context = "rehearsal";
  // New contexts begin with the names of the warm-up from here on.
  await client.warmed();
  const { status, text } = await client.evaluate({ code, context, timeoutMs: rehearsalTimeoutMs });
  await client.dropContext(context);
  if (status !== "error" && status !== "interrupted") return;
  throw new AppError("invalid_recipe", `The ${language} rehearsal failed: ${outputTail(text)}`, {
    details: { traceback: text.slice(-maxTracebackChars) },
  });
}

async function copyKernel(
  { config: { guestDir }, agent }: RunningParent,
  language: Language,
  dir: string,
): Promise<void> {
  const source = join(guestDir, "kernels", language);
  const names = (await readdir(source)).filter((name) => /\.(py|cjs|js)$/.test(name));
  for (const name of names)
    await writeGuestFile(agent, `${dir}/${name}`, [await readFile(join(source, name))]);
  if (language !== "node") return;
  const addons = (await readdir(join(guestDir, "build"))).filter((name) => name.endsWith(".node"));
  for (const name of addons) {
    await writeGuestFile(agent, `${dir}/${name}`, [await readFile(join(guestDir, "build", name))]);
  }
}
