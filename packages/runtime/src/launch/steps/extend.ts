/**
 * A recipe that extends a snapshot: a child of the snapshot, in which the steps run and the interpreters are warmed
 * further, saved as a layer over the snapshot.
 *
 * The state of the child after each step is kept in the cache of images, so that a build begins after the last step
 * that has not changed.
 */
import { join } from "node:path";
import type { HazardId } from "@forkd/contract";
import { ensureLayer, type ImageLease, type LayerStep } from "@forkd/image";
import { readSnapshot, type Draft, type ManifestFacts, type StoredSnapshot } from "@forkd/store";
import { captureBuild } from "../../capture/capture-build.ts";
import { imagesDir } from "../../config.ts";
import { withReplyDeadline } from "../../guest/deadline.ts";
import { servicesAmong } from "../../guest/service-names.ts";
import { noNetwork } from "../../network/sandbox-network.ts";
import type { Runtime } from "../../runtime.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { orDeath } from "../boot-parent.ts";
import { prepareChild, startChild } from "../child.ts";
import { planServices, type AskedProgram, type ServiceSpec } from "../services.ts";
import { warm, type Progress, type WarmPlan } from "../warm-parent.ts";
import { refuseTakenNames } from "./inherited-services.ts";
import { runStep } from "./run-step.ts";
import { asFailedStep, stepReport } from "./run-steps.ts";

export type ExtendPlan = Omit<WarmPlan, "services"> & {
  parent: StoredSnapshot;
  /** They get their names beside those of the parent. */
  services: readonly AskedProgram[];
  /** for messages */
  recipeDir: string;
  steps: readonly LayerStep[];
  recipe: { name: string; digest: string };
  /** hazards whose check the snapshot requires, beside those of the parent */
  require?: readonly HazardId[] | undefined;
  /** of the children; default: that of the parent's */
  network?: ManifestFacts["network"];
};

type ExtendContext = {
  signal: AbortSignal;
  onProgress: Progress;
  lease: ImageLease;
  isFresh?: boolean | undefined;
};

/** Seals the draft. */
export async function extend(
  runtime: Runtime,
  draft: Draft,
  plan: ExtendPlan,
  context: ExtendContext,
): Promise<StoredSnapshot> {
  const { signal, onProgress } = context;
  await using shop = new Workshop(runtime, plan, signal);
  const services = await shop.planServices();
  let below = plan.parent.id;
  for (const step of plan.steps) below = await makeState(runtime, shop, { step, below }, context);
  onProgress("fork", `forking a child of "${plan.parent.tag}"`);
  const { machine, agent, kernels } = (await shop.child()).current;
  await warm({ config: runtime.config, machine, agent, kernels, plan: { ...plan, services }, onProgress });
  return await shop.capture(draft, (facts) => describe(plan, facts));
}

/** What the manifest of the result says: it is built, from this recipe. */
function describe(plan: ExtendPlan, facts: ManifestFacts): ManifestFacts {
  const { verified_as: _, network: __, require: ___, ...rest } = facts;
  const { manifest } = plan.parent;
  const hazards = [...new Set([...(manifest.require ?? []), ...(plan.require ?? [])])];
  const network = plan.network ?? manifest.network;
  return {
    ...rest,
    recipe: plan.recipe,
    env: plan.env,
    ...(plan.defaults && { defaults: plan.defaults }),
    ...(network && { network }),
    ...(hazards.length > 0 && { require: hazards }),
    origin: { kind: "build" },
  };
}

/** Does one step, unless the state after it is in the cache. Returns the instance of that state. */
async function makeState(
  runtime: Runtime,
  shop: Workshop,
  { step, below }: { step: LayerStep; below: string },
  { onProgress, ...context }: ExtendContext,
): Promise<string> {
  const report = stepReport(step, onProgress);
  const imageDir = imagesDir(runtime.config);
  const make = async ({
    directory,
    work,
    instance,
  }: {
    directory: string;
    work: string;
    instance: string;
  }) => {
    const { machine, agent } = (await shop.child()).current;
    try {
      await orDeath(
        machine,
        runStep({ agent, imageDir, step, work, trust: {}, report: report.line, ...context }),
      );
    } catch (error) {
      throw asFailedStep(step, error);
    }
    report.line("saving the state");
    await orDeath(machine, agent.sync());
    await using draft = await runtime.store.draftIn(directory, instance, shop.tag);
    await shop.capture(draft, (facts) => facts);
    await draft.publish();
  };
  const made = await ensureLayer(imageDir, { step, below, make, isState: true }, context);
  if (made.isCached) await shop.startFrom(join(made.directory, made.instance));
  report.done(made.isCached);
  return made.instance;
}

/** The child in which the build works. It is started when something has to be done in it. */
class Workshop implements AsyncDisposable {
  readonly #runtime: Runtime;
  readonly #plan: ExtendPlan;
  readonly #signal: AbortSignal;
  /** what the next child is started from */
  #base: StoredSnapshot;
  #child: Sandbox | undefined;
  #ended: Promise<void> = Promise.resolve();
  readonly #stop = (): void => void this.#end().catch(() => undefined);

  constructor(runtime: Runtime, plan: ExtendPlan, signal: AbortSignal) {
    this.#runtime = runtime;
    this.#plan = plan;
    this.#signal = signal;
    this.#base = plan.parent;
    // Ending the child ends everything that is awaited in it.
    signal.addEventListener("abort", this.#stop, { once: true });
  }

  get tag(): string {
    return this.#plan.parent.tag;
  }

  async child(): Promise<Sandbox> {
    if (this.#child) return this.#child;
    this.#signal.throwIfAborted();
    await this.#runtime.store.verify(this.#base, { signal: this.#signal });
    const prepared = await prepareChild(this.#runtime, this.#base, { signal: this.#signal });
    this.#child = await startChild(this.#runtime, prepared, {
      index: 0,
      env: this.#plan.env,
      values: undefined,
      labels: {},
      ttlSecs: undefined,
      network: noNetwork,
      askedAt: performance.now(),
    });
    return this.#child;
  }

  /** The services of the plan. Throws `invalid_recipe` if the parent has one with the same name. */
  async planServices(): Promise<ServiceSpec[]> {
    const { services, recipeDir, parent } = this.#plan;
    if (services.length === 0) return [];
    const { agent } = await this.child();
    const processes = await withReplyDeadline(agent, "its services cannot be listed", agent.list());
    const taken = servicesAmong(processes).map(({ name }) => name);
    refuseTakenNames({ dir: recipeDir, services }, parent.tag, taken);
    return planServices(services, taken);
  }

  /** Continues from a state of the cache. */
  async startFrom(directory: string): Promise<void> {
    await this.#end();
    this.#base = await readSnapshot(directory, this.tag);
  }

  async capture(
    draft: Draft,
    describeFacts: (facts: ManifestFacts) => ManifestFacts,
  ): Promise<StoredSnapshot> {
    return await captureBuild(this.#runtime, await this.child(), draft, {
      isPrivate: this.#base !== this.#plan.parent,
      describe: describeFacts,
      signal: this.#signal,
    });
  }

  /** Also waits for an end that began before. */
  async #end(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child) this.#ended = child[Symbol.asyncDispose]();
    await this.#ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#signal.removeEventListener("abort", this.#stop);
    await this.#end();
    if (this.#base !== this.#plan.parent) await this.#runtime.store.discardMemory(this.#base);
  }
}
