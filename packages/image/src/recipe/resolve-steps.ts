/** Steps → layers: what runs in the guest, with the variables, the user and the directory that then apply (pure). */
import { posix } from "node:path";
import { builderVersion, digestOf } from "../files/digest.ts";
import { guestPath } from "./fields.ts";
import { Invalid } from "./invalid.ts";
import { stepFacts, stepLabel, type RecipeStep } from "./step-schema.ts";

/** What later steps inherit. An image that steps begin with can have all of them. */
export type StepState = {
  env: Readonly<Record<string, string>>;
  user?: string | undefined;
  workdir?: string | undefined;
};

/** One step that changes the disk. */
export type LayerStep = {
  /** from 1, among all steps */
  number: number;
  total: number;
  label: string;
  state: StepState;
  step: Exclude<RecipeStep, { kind: "env" | "workdir" | "user" }>;
};

/** The layers in order, and the state after the last step. Throws what is wrong with a step. */
export function resolveSteps(
  steps: readonly RecipeStep[],
  start: StepState,
): { layers: LayerStep[]; state: StepState } {
  const layers: LayerStep[] = [];
  let state = start;
  for (const [index, step] of steps.entries()) {
    if (step.kind === "env") state = { ...state, env: { ...state.env, ...step.env } };
    else if (step.kind === "workdir") state = { ...state, workdir: inside(state, step.path) };
    else if (step.kind === "user") state = { ...state, user: step.user };
    else {
      const placed = step.kind === "copy" ? { ...step, to: target(state, step) } : step;
      const label = stepLabel(step).replaceAll(/\s+/g, " ");
      layers.push({ number: index + 1, total: steps.length, label, state, step: placed });
    }
  }
  return { layers, state };
}

function inside({ workdir = "/" }: StepState, path: string): string {
  return posix.resolve(workdir, path);
}

function target(state: StepState, step: RecipeStep & { kind: "copy" }): string {
  const to = inside(state, step.to);
  const isTree = step.files[0]?.type === "directory" || step.files[0]?.to !== "";
  const parsed = to === "/" && isTree ? { success: true as const } : guestPath.safeParse(to);
  if (!parsed.success)
    throw new Invalid(`copy "${step.from}" to "${to}": ${parsed.error.issues[0]?.message}`);
  return to;
}

/**
 * The key of a layer in the cache. `below` is the content that it is over: another build of the same recipe is
 * other content, over which the layer would be a damaged disk.
 */
export function layerDigest(below: string, { step, state }: LayerStep): string {
  const { env, user, workdir } = state;
  const facts = { env, ...(user !== undefined && { user }), ...(workdir !== undefined && { workdir }) };
  // Files are copied in the same way whatever the state is.
  const used = step.kind === "copy" ? {} : facts;
  return digestOf({ builderVersion, layer: 1, below, step: stepFacts(step), state: used });
}
