/**
 * What every child of a snapshot starts with: the commands, services and interpreters of a recipe, in a machine that
 * runs. It is booted for a build, or is a child of the snapshot that the recipe extends.
 */
import { randomBytes } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError, errorMessage, type Language } from "@forkd/contract";
import { writeFile as writeGuestFile, type AgentClient, type Machine } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import type { CommandDefaults } from "../guest/command-defaults.ts";
import { withReplyDeadline } from "../guest/deadline.ts";
import { orDeath } from "./boot-parent.ts";
import { makeWorkdir } from "./make-workdir.ts";
import { runInGuest } from "./run-in-guest.ts";
import { Services, type ServiceSpec } from "./services.ts";
import { commandName, outputTail, startFailure, stepFailure } from "./step-output.ts";
import { readWarmup, runWarmup, startKernel, writeWarmup, type WarmKernel } from "./warm-kernel.ts";

export type WarmPlan = {
  env: Record<string, string>;
  /** where and as whom `run` and the services run; default: / and root */
  workdir?: string | undefined;
  user?: string | undefined;
  /** of interpreters, and of commands in the children that name no directory or user */
  defaults?: CommandDefaults | undefined;
  run: readonly (readonly string[])[];
  services: readonly ServiceSpec[];
  languages: Partial<Record<Language, { warmup: string; rehearse?: string | undefined }>>;
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
/** Lets an interpreter that runs find packages that were installed since it started. */
const lookAgain: Record<Language, { code: string; context: string }> = {
  python: {
    code: "import importlib, site\nfor _path in site.getsitepackages(): site.addsitedir(_path)\nimportlib.invalidate_caches()\ndel importlib, site, _path",
    context: "default",
  },
  node: { code: "undefined", context: "default" },
};
const settleMs = 3000;
const runTimeoutMs = 30 * 60_000;
const warmupTimeoutMs = 10 * 60_000;
/** A child rehearses before it waits ready, so that a long rehearsal is a mistake. */
const rehearsalTimeoutMs = 30_000;
const maxTracebackChars = 4000;

/** A machine that runs, and what is to be done in it. */
type RunningParent = {
  config: RuntimeConfig;
  machine: Machine;
  agent: AgentClient;
  /** interpreters that run in it; those of the plan are added */
  kernels: Map<Language, WarmKernel>;
  plan: WarmPlan;
  onProgress: Progress;
};

/** When it returns, the guest is as its children should have it, and can be saved. */
export async function warm(parent: RunningParent): Promise<void> {
  const { machine, agent, plan, onProgress } = parent;
  const { env, user, workdir } = plan;
  const services = new Services(agent, { env, user, cwd: workdir });
  const watched = <T>(work: Promise<T>): Promise<T> => orDeath(machine, services.orFailure(work));
  await watched(startAll(parent, services));
  onProgress("save", "saving memory and device state");
  await watched(agent.sync());
  // Work that the guest has deferred (write-back, timers, frees) would otherwise be repeated in every child.
  // Nothing announces its end.
  await watched(new Promise((resolve) => setTimeout(resolve, settleMs)));
  await orDeath(machine, services.check());
  await services.leave();
}

async function startAll(parent: RunningParent, services: Services): Promise<void> {
  const { agent, plan, onProgress } = parent;
  await makeWorkdir(agent, plan.workdir);
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
  for (const language of Object.keys(plan.languages) as Language[]) {
    parent.kernels.set(language, await warmKernel(parent, language));
  }
}

async function warmKernel(parent: RunningParent, language: Language): Promise<WarmKernel> {
  const { agent, plan, onProgress, kernels } = parent;
  const running = kernels.get(language);
  const kernel = running && !running.client.dead ? running : await newKernel(parent, language);
  const warmup = plan.languages[language]?.warmup ?? "";
  const before = kernel === running ? await readWarmup(agent, kernel.argv) : undefined;
  // An interpreter that is started again runs all of it.
  await writeWarmup(agent, kernel.argv, [before, warmup].filter((code) => code).join("\n"));
  if (kernel === running)
    await kernel.client.evaluate({ ...lookAgain[language], timeoutMs: warmupTimeoutMs });
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

async function newKernel(parent: RunningParent, language: Language): Promise<WarmKernel> {
  const { agent, plan, onProgress } = parent;
  const { command, main } = interpreters[language];
  const dir = `${guestKernelDir}/${language}`;
  await copyKernel(parent, language, dir);
  onProgress("warm-up", `starting the ${language} interpreter`);
  try {
    return await startKernel(agent, {
      ...plan.defaults,
      language,
      argv: [...command, `${dir}/${main}`],
      env: plan.env,
    });
  } catch (error) {
    throw new AppError("invalid_recipe", `Cannot start the ${language} interpreter: ${errorMessage(error)}`, {
      details: error instanceof AppError ? { ...error.details } : {},
      remedy: advice(`Check that the image has ${command[0]}.`),
      cause: error,
    });
  }
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
