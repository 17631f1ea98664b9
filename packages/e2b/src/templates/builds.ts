/**
 * Builds of templates: a sandbox of the base, the steps in it, and a branch of it under a new tag. They are in
 * memory: a daemon that restarts knows only what was finished.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { advice, AppError, isSandbox, toAppError, type SandboxInfo } from "@forkd/contract";
import { deadlineSignal } from "@forkd/contract/wire";
import { branch, fork, kill, removeSnapshot, type Caller, type Context, type Runtime } from "@forkd/runtime";
import { BuildLog } from "./build-log.ts";
import { snapshotTag, type Target, type Template, type TemplateNames } from "./names.ts";
import { defaultUser, isReady, runStep, startProgram, type Step, type Workshop } from "./steps.ts";
import type { Uploads } from "./uploads.ts";

const keptBuilds = 200;
const maxRunning = 4;
const maxBuildSecs = 3600;
/** The sandbox ends at its timeout if the daemon cannot end it */
const graceSecs = 600;
const readySecs = 600;
const readyEveryMs = 500;
/** As E2B does it: a program without a command that says when it is ready gets this time */
const settleCommand = "sleep 20";

/** Marks the sandboxes in which templates are built. */
export const buildLabel = "e2b-build";

type BuildStatus = "waiting" | "building" | "ready" | "error";
type BuildState = {
  readonly id: string;
  readonly templateId: string;
  readonly target: Target;
  readonly log: BuildLog;
  status: BuildStatus;
  reason?: { readonly message: string; readonly step?: string | undefined };
};

type BuildRequest = {
  readonly base: Template;
  readonly steps: readonly Step[];
  readonly startCmd?: string | undefined;
  readonly readyCmd?: string | undefined;
};

type Parts = { readonly runtime: Runtime; readonly names: TemplateNames; readonly uploads: Uploads };

export class Builds implements AsyncDisposable {
  readonly #parts: Parts;
  readonly #builds = new Map<string, BuildState>();
  readonly #running = new Set<Promise<void>>();
  readonly #closing = new AbortController();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  begin(templateId: string, target: Target): BuildState {
    const state: BuildState = {
      id: randomUUID(),
      templateId,
      target,
      log: new BuildLog(),
      status: "waiting",
    };
    this.#builds.set(state.id, state);
    const old = [...this.#builds.values()].filter(({ status }) => status !== "building");
    for (const { id } of old.slice(0, Math.max(0, this.#builds.size - keptBuilds))) this.#builds.delete(id);
    return state;
  }

  find(id: string): BuildState | undefined {
    return this.#builds.get(id);
  }

  /** The id that a name has, or will have once its first build is finished. */
  idOf(name: string): string | undefined {
    return [...this.#builds.values()].find(({ target }) => target.name === name)?.templateId;
  }

  isKnown(templateId: string): boolean {
    return [...this.#builds.values()].some((each) => each.templateId === templateId);
  }

  /** Returns at once; `status` says how it went. The limits of the caller apply. */
  start(state: BuildState, request: BuildRequest, caller: Caller | undefined): void {
    if (state.status !== "waiting")
      throw new AppError("wrong_state", `Build ${state.id} was started already`, {
        details: { id: state.id },
      });
    if (this.#running.size >= maxRunning)
      throw new AppError("capacity_exhausted", `Cannot build: ${maxRunning} builds are in progress`, {
        details: { limit: maxRunning, retry_after_secs: 10 },
        remedy: { action: "retry_later" },
      });
    state.status = "building";
    const log = this.#parts.runtime.log.child({ build: state.id });
    const running = this.#run(state, request, { log, caller }).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Never rejects. */
  async #run(state: BuildState, request: BuildRequest, given: Context): Promise<void> {
    using deadline = deadlineSignal(maxBuildSecs * 1000, this.#closing.signal);
    const context = { ...given, signal: deadline.signal };
    const place: { step: string } = { step: "base" };
    try {
      await this.#build(state, request, { context, place });
      state.log.add("The template is ready");
      state.status = "ready";
    } catch (error) {
      const failure = toAppError(error);
      const isLate = context.signal.aborted && !this.#closing.signal.aborted;
      const message = isLate ? `The build took longer than ${maxBuildSecs} s` : failure.message;
      state.log.add(message, { level: "error", step: place.step });
      state.reason = { message, step: place.step };
      state.status = "error";
      context.log.warn({ event: "e2b.build", outcome: "failed", name: state.target.name, error: failure });
    }
  }

  async #build(
    state: BuildState,
    { base, steps, startCmd, readyCmd }: BuildRequest,
    { context, place }: { context: Context; place: { step: string } },
  ): Promise<void> {
    const { runtime, names, uploads } = this.#parts;
    const { log } = state;
    log.add(`Starting from the snapshot "${base.tag}"`, { step: place.step });
    const { id } = await startBase(runtime, base, context).catch((error: unknown) => {
      throw names.explain(base.alias ?? base.id, error);
    });
    try {
      const settings = { env: { ...base.env }, user: base.user, workdir: base.workdir };
      const shop: Workshop = { runtime, id, context, uploads, log, settings };
      settings.user ??= await defaultUser(shop);
      for (const [at, step] of steps.entries()) {
        place.step = String(at + 1);
        await runStep(shop, step, place.step);
      }
      place.step = "finalize";
      if (startCmd !== undefined) await startProgram(shop, startCmd);
      const ready = readyCmd ?? (startCmd === undefined ? undefined : settleCommand);
      if (ready !== undefined) await waitUntilReady(shop, ready);
      const tag = snapshotTag(state.target.name, state.id.slice(0, 8));
      log.add(`Saving the snapshot "${tag}"`, { step: place.step });
      const made = await branch(
        runtime,
        { id, tag, wait: true, n: 0, vary: [], env: {}, labels: {} },
        context,
      );
      const facts = { cpuCount: made.vcpus, memoryMib: made.memory_mib };
      await names
        .add(state.target, { id: state.id, templateId: state.templateId, tag, ...settings, ...facts })
        .catch(async (error: unknown) => {
          await removeSnapshot(runtime, { tag }).catch(() => undefined);
          throw error;
        });
    } finally {
      await kill(runtime, { id }).catch((error: unknown) =>
        context.log.warn({ event: "e2b.build", outcome: "sandbox left", sandbox: id, error }),
      );
    }
  }

  /** Ends the builds in progress. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new AppError("daemon_stopping", "The daemon is stopping"));
    await Promise.all(this.#running);
  }
}

async function startBase(runtime: Runtime, base: Template, context: Context): Promise<SandboxInfo> {
  const request = {
    snapshot_tag: base.tag,
    n: 1,
    labels: { [buildLabel]: "true" },
    env: {},
    vary: [],
    ttl_secs: maxBuildSecs + graceSecs,
    // Steps install packages; the rules of the caller's key and of the settings apply.
    ...(runtime.network.device !== "none" && { network: { mode: "open" as const, rules: [] } }),
    prewarm: false,
    live_fork: false,
  };
  const [entry] = await fork(runtime, request, context);
  if (entry && isSandbox(entry)) return entry;
  throw new AppError("engine_failed", `Cannot start the base: ${entry?.error ?? "no sandbox was made"}`);
}

async function waitUntilReady(shop: Workshop, command: string): Promise<void> {
  const until = performance.now() + readySecs * 1000;
  shop.log.add(`Waiting until the command "${command.slice(0, 100)}" succeeds`, { step: "finalize" });
  // There is no event: only the command itself can say it.
  while (!(await isReady(shop, command))) {
    shop.context.signal?.throwIfAborted();
    if (performance.now() > until)
      throw new AppError("deadline_exceeded", `The template was not ready within ${readySecs} s`, {
        remedy: advice("Check the start command and the ready command."),
      });
    await sleep(readyEveryMs, undefined, shop.context.signal && { signal: shop.context.signal });
  }
}
