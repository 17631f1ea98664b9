/**
 * The parent: a machine booted from images, warmed, and saved into a draft.
 *
 * It is killed while it is paused: its memory file is mapped shared, and one instruction after the device
 * state was saved would make memory and devices two different instants.
 */
import { randomBytes } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError, errorMessage, type Language } from "@forkd/contract";
import {
  agentProtocolVersion,
  readFile as readGuestFile,
  writeFile as writeGuestFile,
  type AgentClient,
  type MachineShape,
} from "@forkd/machine";
import type { Draft, ManifestFacts } from "@forkd/store";
import { withReplyDeadline } from "../guest/deadline.ts";
import { serviceLabel } from "../guest/service-names.ts";
import type { RuntimeConfig } from "../config.ts";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";
import { bootParent, orDeath, type BootPlan } from "./boot-parent.ts";
import { runInGuest } from "./run-in-guest.ts";
import { recordKernel, startKernel, type WarmKernel } from "./warm-kernel.ts";

export type BakePlan = BootPlan & {
  rootfs: { digest: string };
  kernel: { digest: string; version: string };
  initramfs: { digest: string };
  env: Record<string, string>;
  run: readonly (readonly string[])[];
  services: readonly { name: string; argv: readonly string[]; port?: number | undefined }[];
  languages: Partial<Record<Language, { warmup: string }>>;
  recipe?: { name: string; digest: string } | undefined;
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
/** output of a service per stream that the guest keeps, for the logs in its forks */
const keptBytes = 256 * 1024;
const serviceTimeoutMs = 120_000;

export async function bake(
  runtime: Runtime,
  draft: Draft,
  plan: BakePlan,
  { signal, onProgress }: { signal?: AbortSignal | undefined; onProgress: Progress },
): Promise<ManifestFacts> {
  await using parent = await bootParent(runtime, draft, plan, { signal, onProgress });
  const { machine, agent, shape, commandLine } = parent;
  const kernels = await orDeath(machine, warm({ config: runtime.config, agent, plan, onProgress }));
  onProgress("save", "saving memory and device state");
  await orDeath(machine, agent.sync());
  // Work that the guest has deferred (write-back, timers, frees) would otherwise be repeated in every child.
  // Nothing announces its end.
  await orDeath(machine, new Promise((resolve) => setTimeout(resolve, settleMs)));
  const records = kernels.map(recordKernel);
  const paused = await machine.pause();
  await paused.saveDevices(draft.path("devices"));
  await machine[Symbol.asyncDispose]();
  return manifestFacts(runtime, plan, { shape, commandLine, kernels: records });
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
    kernels: parent.kernels,
    origin: { kind: "build" },
  };
}

/** A parent that runs, and what is to be done in it. */
type RunningParent = {
  config: RuntimeConfig;
  agent: AgentClient;
  plan: BakePlan;
  onProgress: Progress;
};

async function warm(parent: RunningParent): Promise<WarmKernel[]> {
  const { agent, plan, onProgress } = parent;
  for (const argv of plan.run) {
    onProgress("run", argv.join(" "));
    const result = await runInGuest(agent, { argv, env: plan.env, timeoutMs: runTimeoutMs });
    if (result.exitCode !== 0) {
      throw new AppError(
        "invalid_recipe",
        `Cannot run "${argv.join(" ")}" in the parent: exit code ${result.exitCode}`,
        {
          details: { output: result.output.slice(-4000) },
        },
      );
    }
  }
  for (const service of plan.services) await startService(parent, service);
  const kernels: WarmKernel[] = [];
  for (const language of Object.keys(plan.languages) as Language[]) {
    kernels.push(await warmKernel(parent, language));
  }
  return kernels;
}

async function startService(
  { agent, plan: { env }, onProgress }: RunningParent,
  service: BakePlan["services"][number],
): Promise<void> {
  onProgress("service", service.argv.join(" "));
  const process = agent.start({
    argv: service.argv,
    env,
    detached: true,
    label: serviceLabel(service.name),
    keepBytes: keptBytes,
  });
  await process.started;
  if (service.port === undefined) return;
  const until = Date.now() + serviceTimeoutMs;
  while (!(await accepts(agent, service.port))) {
    // The guest does not announce a listening socket, so it has to be polled.
    if (Date.now() > until) {
      throw new AppError(
        "invalid_recipe",
        `Service "${service.argv.join(" ")}" does not listen on port ${service.port}`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function accepts(agent: AgentClient, port: number): Promise<boolean> {
  const listening = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, "0")} [0-9A-F]+:0000 0A `);
  for (const table of ["/proc/net/tcp", "/proc/net/tcp6"]) {
    let text = "";
    for await (const bytes of await readGuestFile(agent, table)) text += bytes.toString("latin1");
    if (listening.test(text)) return true;
  }
  return false;
}

async function warmKernel(parent: RunningParent, language: Language): Promise<WarmKernel> {
  const { agent, plan, onProgress } = parent;
  const { command, main } = interpreters[language];
  const dir = `${guestKernelDir}/${language}`;
  await copyKernel(parent, language, dir);
  onProgress("warm-up", `starting the ${language} kernel`);
  let kernel: WarmKernel;
  try {
    kernel = await startKernel(agent, { language, argv: [...command, `${dir}/${main}`], env: plan.env });
  } catch (error) {
    throw new AppError("invalid_recipe", `Cannot start the ${language} kernel: ${errorMessage(error)}`, {
      remedy: advice(`Check that the image has ${command[0]}.`),
      cause: error,
    });
  }
  const warmup = plan.languages[language]?.warmup ?? "";
  if (warmup !== "") {
    onProgress("warm-up", `running the ${language} warm-up`);
    const result = await kernel.client.evaluate({
      code: warmup,
      context: "default",
      timeoutMs: warmupTimeoutMs,
    });
    if (result.status === "error" || result.status === "interrupted") {
      throw new AppError(
        "invalid_recipe",
        `The ${language} warm-up failed: ${result.text.trim().split("\n").at(-1) ?? ""}`,
        {
          details: { traceback: result.text.slice(-8000) },
        },
      );
    }
  }
  // Do once what every child does first, so that the pages it needs are in memory.
  await withReplyDeadline("the interpreter is silent", kernel.client.afterFork(randomBytes(64), plan.env));
  await kernel.client.evaluate({ code: firstEval[language], context: "default", timeoutMs: warmupTimeoutMs });
  return kernel;
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
