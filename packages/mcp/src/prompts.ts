/** Prompts: ways to work that forks make possible. */
import type { McpServer, StandardSchemaWithJSON } from "@modelcontextprotocol/server";
import { toAppError } from "@forkd/contract/wire";
import { s, type ObjectSchema, type Schema } from "./schema.ts";

const mostVariants = 16;

export function registerPrompts(server: McpServer): void {
  server.registerPrompt(
    "explore_variants",
    {
      title: "Explore k variants and keep the best",
      description:
        "Try k ways to solve a task, each in its own child of one branch, compare them and keep the best",
      argsSchema: checked({
        task: s.string().min(1).describe("What to solve, and how to see which result is best"),
        k: s
          .string()
          .regex(/^([2-9]|1[0-6])$/, `must be a whole number, 2 to ${mostVariants}`)
          .default("3")
          .describe(`Number of variants, 2 to ${mostVariants}`),
        snapshot: s.string().optional().describe("Tag of the snapshot to start from"),
      }),
    },
    ({ task, k, snapshot }) => ({
      description: `Explore ${k} variants`,
      messages: [{ role: "user", content: { type: "text", text: exploreText({ task, k, snapshot }) } }],
    }),
  );
  server.registerPrompt(
    "debug_by_rewind",
    {
      title: "Debug by rewind",
      description:
        "Find the cause of a problem with save points: branch before each risky step, rewind after a failed one",
      argsSchema: checked({
        problem: s.string().min(1).describe("What fails, and how to see it fail"),
        sandbox_id: s.string().optional().describe("Sandbox that has the problem"),
        snapshot: s.string().optional().describe("Tag of the snapshot to start from if there is no sandbox"),
      }),
    },
    ({ problem, sandbox_id, snapshot }) => ({
      description: "Debug by rewind",
      messages: [
        { role: "user", content: { type: "text", text: debugText({ problem, sandbox_id, snapshot }) } },
      ],
    }),
  );
}

function exploreText({
  task,
  k,
  snapshot,
}: {
  task: string;
  k: string;
  snapshot?: string | undefined;
}): string {
  const from =
    snapshot === undefined
      ? "Call list_snapshots and choose the snapshot that fits the task best."
      : `Use the snapshot "${snapshot}".`;
  return `Solve this task by trying ${k} variants in parallel, and keep the best:

${task}

Work like this, with the tools of forkd:

1. ${from} Call spawn_sandboxes with n 1. This sandbox is the base.
2. Prepare everything that all variants need in the base: files, packages, data, a test or a measure that says which result is better. Run the measure once, so that there is a number to beat.
3. Think of ${k} variants that differ in their idea, not in a detail. Name each in a few words.
4. Call branch_sandbox on the base with n ${k} and vary: one entry per variant, with values that say which variant the child is. All children begin at this same instant.
5. Carry out one variant in each child. Use exec_command with background true and wait_for_output for long work, so that the children work at the same time. A variant that fails is a result too: note why.
6. Run the same measure in every child. Call diff_files for the two best children to see what differs.
7. Choose the best by the measure, not by how it looks. Copy its result to where the user needs it, or branch its child with a tag that the user can find.
8. Clean up: call kill_sandbox for the base and for every child that is not kept, and delete_snapshot for the branch if no sandbox of it is kept. Call list_sandboxes with own true to see that nothing is left.

Report: a table with each variant, its measure and one sentence, which one was kept and why, and the ids and tags that are left.`;
}

function debugText(given: {
  problem: string;
  sandbox_id?: string | undefined;
  snapshot?: string | undefined;
}): string {
  const { problem, sandbox_id: id, snapshot } = given;
  const start =
    id !== undefined
      ? `Work in the sandbox ${id}.`
      : snapshot !== undefined
        ? `Call spawn_sandboxes with snapshot_tag "${snapshot}".`
        : "Call list_snapshots, choose one that fits, and call spawn_sandboxes.";
  return `Find the cause of this problem and correct it:

${problem}

Work like this, with the tools of forkd:

1. ${start}
2. Make the problem happen, as simply as possible.
3. Call branch_sandbox with a tag such as "before-step-1" just before it happens. This is a save point with memory, processes and files.
4. Try one explanation at a time: change something, look at the result. Before each risky step call branch_sandbox again with the next tag.
5. After a step that did not help, call rewind_sandbox to the last good save point. Do not undo changes by hand.
6. To try several explanations at once, call branch_sandbox with n and vary, and work in the children.
7. When the problem is solved, call rewind_sandbox to the first save point and apply only the changes that are needed, to see that they are enough.
8. Clean up: call kill_sandbox for sandboxes and delete_snapshot for save points that are no longer needed.

Report: the cause, the smallest change that corrects it, and how you saw that it does.`;
}

/** The library checks the arguments of prompts and words the answer. */
function checked<S extends Readonly<Record<string, Schema<unknown>>>>(
  shape: S,
): StandardSchemaWithJSON<unknown, ObjectSchema<S>["type"]> {
  const schema = s.object(shape);
  const converted = () => ({ ...schema.json });
  return {
    "~standard": {
      version: 1,
      vendor: "forkd",
      validate: (value) => {
        try {
          return { value: schema.check(value ?? {}, "") };
        } catch (error) {
          return { issues: [{ message: toAppError(error).message }] };
        }
      },
      jsonSchema: { input: converted, output: converted },
    },
  };
}
