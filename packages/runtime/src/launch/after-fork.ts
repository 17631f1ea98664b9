/**
 * The after-fork step: what makes a machine different from its siblings. Agent and kernels get their own
 * identity, randomness, clock and variables. A child may be handed out only after it.
 */
import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { Trace } from "@forkd/base";
import { writeFile as writeGuestFile, type AgentClient } from "@forkd/machine";
import type { Manifest } from "@forkd/store";
import { wallClock } from "../capture/guest-clock.ts";
import type { GuestIdentity } from "../sandbox/paths.ts";
import { commandDefaults } from "../guest/command-defaults.ts";
import { attachKernel, type WarmKernel } from "./warm-kernel.ts";

const none = new Uint8Array();

type AgentStep = {
  identity: GuestIdentity;
  /** undefined: the link stays as it is in the snapshot */
  isConnected: boolean | undefined;
};
type Step = AgentStep & {
  isConnected: boolean;
  env: Readonly<Record<string, string>>;
  /** JSON for /run/forkd/values.json */
  values?: unknown;
  trace?: Trace | undefined;
};

/** What a machine that waits has, beside its identity and randomness. */
export type Rehearsed = {
  kernels: readonly WarmKernel[];
  /** of its guest; none: it has no network device */
  link: "none" | "down" | "unknown";
};

/** Everything leaves in one write: nothing here waits for an answer before the last request is sent. */
export async function afterFork(
  agent: AgentClient,
  manifest: Manifest,
  { env, values, trace, ...step }: Step,
): Promise<WarmKernel[]> {
  const forked = forkAgent(agent, manifest, step);
  const kernels = manifest.kernels.map((record) =>
    attachKernel(agent, record, { ...commandDefaults(manifest), env }),
  );
  const seeded = kernels.map(({ client }, nth) => {
    const done = client.afterFork(randomBytes(64), env);
    if (!isInEval(manifest, nth)) return done;
    // The kernel is in the middle of an eval. The agent has made it re-seed its generators; the rest follows
    // the eval, and a kernel that cannot do it must not be used.
    done.catch(() => client[Symbol.asyncDispose]().catch(() => undefined));
    return undefined;
  });
  if (trace) {
    const note = (done: Promise<unknown>, step: string) =>
      void done.then(
        () => trace.mark(step),
        () => undefined,
      );
    note(agent.ready, "hello");
    note(forked, "after_fork");
  }
  await Promise.all([agent.ready, forked, ...seeded]);
  trace?.mark("seeded");
  // The time that was sent first is late by the length of the start. Nothing waits for the correction.
  agent.setClock(wallClock).catch(() => undefined);
  await writeValues(agent, values);
  return kernels;
}

async function writeValues(agent: AgentClient, values: unknown): Promise<void> {
  if (values !== undefined)
    await writeGuestFile(agent, "/run/forkd/values.json", [Buffer.from(JSON.stringify(values))]);
}

/**
 * The rest of the step for a machine that was made ready by rehearseFork(): what depends on the call. Its identity
 * and its randomness are its own already.
 */
export async function completeFork(
  agent: AgentClient,
  { env, values, trace, isConnected }: Omit<Step, "identity">,
  { kernels: attached, link }: Pick<Rehearsed, "kernels" | "link">,
): Promise<WarmKernel[]> {
  const kernels = attached.map((kernel) => ({ ...kernel, env }));
  const isChanged = link !== "none" && link !== (isConnected ? "up" : "down");
  await Promise.all([
    agent.setClock(wallClock),
    ...(isChanged ? [agent.setNetwork(isConnected)] : []),
    ...kernels.map(({ client }) => completeKernel(client, env)),
  ]);
  trace?.mark("seeded");
  await writeValues(agent, values);
  return kernels;
}

/**
 * A kernel serves its messages in order. So only what can fail in code of the user is waited for; the variables
 * are set before the first eval, and a kernel that cannot set them must not be used.
 */
async function completeKernel(
  client: WarmKernel["client"],
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const { rehearsed } = client;
  // A kernel that could not rehearse is not re-seeded yet.
  if (!rehearsed) return client.afterFork(randomBytes(64), env);
  if (rehearsed.hasCallbacks) return client.afterFork(none, env);
  if (!rehearsed.env || !isDeepStrictEqual(rehearsed.env, env))
    client.afterFork(none, env).catch(() => client[Symbol.asyncDispose]().catch(() => undefined));
}

/**
 * The part for a machine that waits to be handed out: identity and randomness of guest and kernels, and a
 * rehearsal of what comes then. The user's callbacks run once, at the
 * hand-out. `env` is what most children are handed out with.
 */
export async function rehearseFork(
  agent: AgentClient,
  manifest: Manifest,
  { identity, env }: { identity: GuestIdentity; env: Readonly<Record<string, string>> },
): Promise<Rehearsed & { problems: unknown[] }> {
  const problems: unknown[] = [];
  // A parent was connected to nothing. The link of a branch stays as it is until it is known what it has to be.
  const isConnected = manifest.origin.kind === "build" ? false : undefined;
  const forked = forkAgent(agent, manifest, { identity, isConnected });
  const kernels = manifest.kernels.map((record) =>
    attachKernel(agent, record, { ...commandDefaults(manifest), env }),
  );
  const rehearsed = kernels.map(async ({ client }, nth) => {
    if (isInEval(manifest, nth)) return;
    try {
      await client.rehearse(env);
    } catch (error) {
      if (client.dead) throw error;
      // Code of the recipe that fails has no effect on the child.
      problems.push(error);
    }
  });
  const [{ missing }] = await Promise.all([forked, agent.ready, ...rehearsed]);
  const link = missing.device ? "none" : isConnected === false ? "down" : "unknown";
  return { kernels, link, problems };
}

function forkAgent(
  agent: AgentClient,
  manifest: Manifest,
  { identity, isConnected }: AgentStep,
): ReturnType<AgentClient["afterFork"]> {
  return agent.afterFork({
    entropy: randomBytes(64),
    realtimeNs: wallClock,
    ...identity,
    ...(isConnected !== undefined && { network: isConnected ? "up" : "down" }),
    // A parent was connected to nothing.
    skipConnections: manifest.origin.kind === "build",
  });
}

/** Whether the snapshot has the kernel in the middle of an eval. */
function isInEval({ kernels }: Manifest, nth: number): boolean {
  return (kernels[nth]?.unanswered.length ?? 0) > 0;
}
