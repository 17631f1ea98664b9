/** Branch and rewind: saving a running sandbox, and returning to saved state. */
import { s } from "../schema.ts";
import { safeValue } from "../results/safe-text.ts";
import {
  childAnswer,
  env,
  labels,
  lifetime,
  sandboxAnswer,
  sandboxId,
  snapshotAnswer,
  tag,
  vary,
} from "./fields.ts";
import { keepChildren } from "./sandboxes.ts";
import { creates, replaces, tool } from "./tool.ts";

export const branchSandbox = tool("branch_sandbox", {
  title: "Branch a sandbox",
  description:
    "Save a running sandbox as a new snapshot, with memory, processes and disk; the sandbox continues after some milliseconds. " +
    "With n, also fork n children from that instant; vary gives each its own environment or values. " +
    "Use it before a risky step (rewind_sandbox returns to it) and to try several ways from one state. " +
    "Kill the children with kill_sandbox, and delete the snapshot with delete_snapshot, when they are no longer needed.",
  input: s.object({
    sandbox_id: sandboxId,
    tag: tag.optional().describe("Tag of the new snapshot; default: made from the sandbox and the time"),
    n: s.int().min(0).max(1000).default(0).describe("Number of children to fork from it"),
    vary,
    env,
    labels,
    ...lifetime,
    mode: s
      .enum(["full", "diff", "live"])
      .optional()
      .describe("live (default): short pause; diff: no extra memory; full: without a parent"),
    diff: s.boolean().optional().describe('Accepted for compatibility: the same as mode "diff"'),
    measure_diff: s.boolean().optional().describe("Accepted for compatibility: sizes are always reported"),
    wait: s
      .boolean()
      .optional()
      .describe('False: answer before the snapshot is on disk; get_snapshot shows when it is "ready"'),
  }),
  output: snapshotAnswer.extend({ children: s.array(childAnswer), pause_ms: s.number() }),
  annotations: creates,
  run: async ({ sandbox_id: id, diff, ...input }, call) => {
    const { forkd, backend, signal, progress } = call;
    progress.say(`Branching ${id}`);
    const { n, ttl_secs = backend.ttlSecs } = input;
    const request = {
      id,
      ...input,
      // The daemon refuses both, as the original does; false is the default of the original's clients.
      ...(diff === true && { diff }),
      ...(n > 0 && { labels: backend.labels(input.labels), ttl_secs }),
    };
    const branch = await forkd.call("branch", request, { signal });
    await keepChildren(call, branch.children);
    return { structured: safeValue(branch) as Record<string, unknown> };
  },
});

export const rewindSandbox = tool("rewind_sandbox", {
  title: "Rewind a sandbox",
  description:
    "Return a sandbox to one of its branches or to a snapshot that it descends from: memory, processes and disk. " +
    "The id stays. Everything since that snapshot is lost unless another branch has saved it. It also starts a dead sandbox again.",
  input: s.object({
    sandbox_id: sandboxId,
    tag: tag.describe("Snapshot to return to: a branch of the sandbox, or an ancestor"),
  }),
  output: sandboxAnswer,
  annotations: replaces,
  run: async ({ sandbox_id: id, tag: to }, { forkd, signal, progress }) => {
    progress.say(`Rewinding ${id} to "${to}"`);
    return {
      structured: safeValue(await forkd.call("rewind", { id, to }, { signal })) as Record<string, unknown>,
    };
  },
});
