/** Sandboxes: fork, list, describe, pause, resume and kill. */
import { fromErrorBody, isSandbox } from "@forkd/contract/wire";
import type { ForkEntry } from "@forkd/contract";
import { s } from "../schema.ts";
import { safeValue } from "../results/safe-text.ts";
import { childAnswer, env, labels, lifetime, sandboxAnswer, sandboxId, tag, vary } from "./fields.ts";
import { creates, listAnswer, reads, replaces, tool, type Answer, type Call } from "./tool.ts";

export const spawnSandboxes = tool("spawn_sandboxes", {
  title: "Fork sandboxes",
  description:
    "Fork n sandboxes from a snapshot. A sandbox is a virtual machine that starts in milliseconds with everything that is warm in the snapshot. " +
    "Use vary to give each one its own environment or values. " +
    "A sandbox runs until kill_sandbox is called, its time to live is over, or the user ends it: kill each one that is no longer needed. " +
    "Sandboxes of one call share nothing.",
  input: s.object({
    snapshot_tag: tag.describe("Tag of the snapshot, from list_snapshots"),
    n: s.int().min(1).max(1000).default(1).describe("Number of sandboxes"),
    vary,
    env,
    labels,
    ...lifetime,
    memory_limit_mib: s.int().min(32).optional().describe("Memory that each may use on the host"),
    per_child_netns: s
      .boolean()
      .optional()
      .describe("Accepted for compatibility: each has its own network namespace"),
    prewarm: s.boolean().optional().describe("Accepted for compatibility: each is warm"),
    live_fork: s.boolean().optional().describe("Accepted for compatibility: no effect"),
  }),
  output: s.object({ result: s.array(childAnswer) }),
  annotations: creates,
  run: async (input, call) => {
    const { forkd, backend, signal, progress } = call;
    progress.say(`Forking ${input.n} of "${input.snapshot_tag}"`);
    const life = { ttl_secs: input.ttl_secs ?? backend.ttlSecs };
    const request = { ...input, ...life, labels: backend.labels(input.labels) };
    const entries = await forkd.call("fork", request, { signal });
    await keepChildren(call, entries);
    return listAnswer(safeValue(entries) as unknown[]);
  },
});

/** Remembers the children. Kills them if the client has cancelled the call: it never learns their ids. */
export async function keepChildren(
  { backend, forkd, signal }: Call,
  entries: readonly ForkEntry[],
): Promise<void> {
  const ids = entries.filter(isSandbox).map(({ id }) => id);
  const [first] = entries;
  // Without a single sandbox the call has failed; a model must not take the list for a success.
  if (ids.length === 0 && first !== undefined && !isSandbox(first)) throw fromErrorBody(first);
  backend.created.add(ids);
  if (!signal.aborted) return;
  const results = await Promise.allSettled(ids.map((id) => forkd.call("kill", { id })));
  for (const [index, { status }] of results.entries())
    if (status === "fulfilled") backend.created.forget(ids[index] ?? "");
}

export const listSandboxes = tool("list_sandboxes", {
  title: "List sandboxes",
  description:
    "List sandboxes, the oldest first: running, paused and dead ones. The label mcp names the MCP server that created a sandbox.",
  input: s.object({
    tag: tag.optional().describe("Only sandboxes of this snapshot"),
    label: s.string().max(320).optional().describe("Only sandboxes with this label: name or name=value"),
    state: s.enum(["running", "paused", "dead"]).optional().describe("Only sandboxes in this state"),
    own: s.boolean().optional().describe("Only sandboxes that this MCP server created"),
  }),
  output: s.object({ result: s.array(sandboxAnswer) }),
  annotations: reads,
  run: async ({ tag: snapshot, label, state, own }, { forkd, backend, signal }) => {
    const filter = { ...(label !== undefined && { label: [label] }), tag: snapshot, state, limit: 1000 };
    const all = await forkd.call("listSandboxes", filter, { signal });
    const shown = own === true ? all.filter(({ id }) => backend.created.has(id)) : all;
    return listAnswer(safeValue(shown) as unknown[]);
  },
});

const one = s.object({ sandbox_id: sandboxId });

export const getSandbox = tool("get_sandbox", {
  title: "Describe a sandbox",
  description: "Describe one sandbox: its state, why it stopped, its snapshot, limits, network and labels.",
  input: one,
  output: sandboxAnswer,
  annotations: reads,
  run: async ({ sandbox_id: id }, { forkd, signal }) =>
    object(await forkd.call("getSandbox", { id }, { signal })),
});

export const killSandbox = tool("kill_sandbox", {
  title: "Kill a sandbox",
  description:
    "Kill a sandbox and remove its memory and disk. What is in it is lost unless branch_sandbox has saved it.",
  input: one,
  output: s.object({ id: s.string(), killed: s.boolean() }),
  annotations: replaces,
  run: async ({ sandbox_id: id }, { forkd, backend, signal }) => {
    await forkd.call("kill", { id }, { signal });
    backend.created.forget(id);
    return object({ id, killed: true });
  },
});

export const pingSandbox = tool("ping_sandbox", {
  title: "Ping a sandbox",
  description: "Ask the agent in the guest for an answer, to see whether the sandbox works.",
  input: one,
  output: s.looseObject({ ok: s.boolean(), round_trip_ms: s.number() }),
  annotations: reads,
  run: async ({ sandbox_id: id }, { forkd, signal }) => object(await forkd.call("ping", { id }, { signal })),
});

export const pauseSandbox = tool("pause_sandbox", {
  title: "Pause a sandbox",
  description:
    "Save a sandbox to disk and stop its machine: it uses no CPU and no memory. The id stays, and resume_sandbox continues it.",
  input: one,
  output: sandboxAnswer,
  annotations: { ...replaces, destructiveHint: false },
  run: async ({ sandbox_id: id }, { forkd, signal }) => object(await forkd.call("pause", { id }, { signal })),
});

export const resumeSandbox = tool("resume_sandbox", {
  title: "Resume a sandbox",
  description: "Resume a sandbox that pause_sandbox or a timeout has paused.",
  input: one,
  output: sandboxAnswer,
  annotations: { ...replaces, destructiveHint: false },
  run: async ({ sandbox_id: id }, { forkd, signal }) =>
    object(await forkd.call("resume", { id }, { signal })),
});

function object(value: object): Answer {
  return { structured: safeValue(value) as Record<string, unknown> };
}
