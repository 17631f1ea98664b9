/**
 * The steps of a recipe, each a layer of the disk.
 *
 * A step that is not in the cache runs in a guest that is booted for it over the layers below, and only what it
 * wrote to the disk is kept. So a layer does not depend on which layers were in the cache.
 */
import { join } from "node:path";
import { removeTree } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { ensureLayer, layerName, throttleLines, type ImageLease, type LayerStep } from "@forkd/image";
import type { Draft } from "@forkd/store";
import { imagesDir } from "../../config.ts";
import type { Runtime } from "../../runtime.ts";
import { backingOf, type BakePlan } from "../bake.ts";
import { bootParent, orDeath } from "../boot-parent.ts";
import type { Progress } from "../warm-parent.ts";
import { runStep } from "./run-step.ts";

type StepsContext = {
  signal: AbortSignal;
  onProgress: Progress;
  lease: ImageLease;
  /** runs every step, although its layer is in the cache */
  isFresh?: boolean | undefined;
};

/** Puts the layers of the steps into the draft, which has the root file system. Returns their number. */
export async function runSteps(
  runtime: Runtime,
  draft: Draft,
  { plan, steps, instance: rootfs }: { plan: BakePlan; steps: readonly LayerStep[]; instance: string },
  { onProgress, ...context }: StepsContext,
): Promise<number> {
  let below = rootfs;
  for (const [index, step] of steps.entries()) {
    const report = stepReport(step, onProgress);
    const { instance, isCached } = await ensureLayer(
      imagesDir(runtime.config),
      {
        step,
        below,
        make: (place) =>
          runAlone(runtime, { draft, index, plan, step }, place, { ...context, report: report.line }),
        pin: (directory) => draft.share(draft.diskPath(index), join(directory, layerName)),
      },
      context,
    );
    report.done(isCached);
    below = instance;
  }
  return steps.length;
}

const maxLabelChars = 80;

function shortLabel({ label }: LayerStep): string {
  return label.length > maxLabelChars ? `${label.slice(0, maxLabelChars - 1)}…` : label;
}

type StepReport = {
  /** what is done at the moment, or a line of output */
  line: (text: string) => void;
  done: (isCached: boolean) => void;
};

/** Reports the progress of one step: `step 3/5`, `RUN make: compiling`. */
export function stepReport(step: LayerStep, onProgress: Progress): StepReport {
  const name = `step ${step.number}/${step.total}`;
  const label = shortLabel(step);
  onProgress(name, label);
  return {
    line: throttleLines((text) => onProgress(name, `${label}: ${text}`)),
    done: (isCached) => onProgress(name, isCached ? `${label}  cached` : label),
  };
}

type Alone = { draft: Draft; index: number; plan: BakePlan; step: LayerStep };

async function runAlone(
  runtime: Runtime,
  { draft, index, plan, step }: Alone,
  { directory, work }: { directory: string; work: string },
  context: Omit<StepsContext, "onProgress"> & { report: StepReport["line"] },
): Promise<void> {
  const { signal, report } = context;
  const memory = join(work, "memory");
  const overlay = join(directory, layerName);
  const disk = { overlay, backing: backingOf(draft, index), bytes: plan.rootfs.bytes };
  {
    const silent = () => undefined;
    await using parent = await bootParent(runtime, { memory, disk }, plan, { signal, onProgress: silent });
    const { machine, agent } = parent;
    try {
      await orDeath(
        machine,
        runStep({ agent, imageDir: imagesDir(runtime.config), step, work, trust: plan.trust, ...context }),
      );
    } catch (error) {
      throw asFailedStep(step, error);
    }
    report("saving the layer");
    await orDeath(machine, agent.sync());
    // It writes what it holds of the layer, and nothing more.
    await machine.pause();
    await machine[Symbol.asyncDispose]();
  }
  await removeTree(memory);
}

/** The error names the step, whatever went wrong in it. */
export function asFailedStep(step: LayerStep, error: unknown): unknown {
  if (!(error instanceof AppError) || error.code === "cancelled") return error;
  const { number, total } = step;
  return new AppError(
    error.code,
    `Step ${number} of ${total} failed: ${shortLabel(step)}: ${error.message}`,
    {
      details: { step: number, steps: total, ...error.details },
      ...(error.remedy && { remedy: error.remedy }),
      cause: error,
    },
  );
}
