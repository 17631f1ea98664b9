/**
 * A child that waits to be handed out: restored, with its own identity and randomness, rehearsed, and stopped.
 *
 * Its vCPUs are stopped, so nothing happens in it while it waits: no timer elapses, no program of the snapshot
 * continues, and it costs no CPU. It belongs to no user and has no record: a daemon that starts later removes it.
 *
 *   prepareChild() ─► makeReady() ─► (waits) ─► handOut() ─► SandboxMachine
 *                                       └─► discardChild()
 */
import { asForeground, Scope } from "@forkd/base";
import { diagnose, holdToLimits, makeGroup } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";
import { childEnv } from "../sandbox/facts.ts";
import { guestIdentity } from "../sandbox/paths.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { completeFork, rehearseFork } from "./after-fork.ts";
import type { PreparedChild, ReadyChild } from "./prepared.ts";
import { answered, openAgent, requireAttachable, sandboxMachine, type StartRequest } from "./start.ts";

/** A child that is not handed out in this part of the usual time is given up, and another one is used. */
const handOutShare = 1 / 2;

/** Takes the child over: a failure leaves nothing of it. */
export async function makeReady(
  runtime: Pick<Runtime, "config" | "log">,
  child: PreparedChild,
  signal: AbortSignal,
): Promise<ReadyChild> {
  await using homeScope = child.homeScope.keep();
  await using machineScope = child.scope.keep();
  await using scope = new Scope();
  scope.use(machineScope.keep());
  const { snapshot } = child;
  const identity = guestIdentity(child.id);
  const agent = scope.use(openAgent(runtime, child));
  const facts = { id: child.id, index: 0, env: {} };
  const env = childEnv(snapshot.manifest.env, facts, { secrets: {} });
  const launch = { ...child, explain: () => undefined };
  const run = async () => {
    const machine = await child.machine.start();
    const { problems, ...ready } = await rehearseFork(agent, snapshot.manifest, { identity, env });
    for (const error of problems) runtime.log.debug({ event: "pool.rehearse", tag: snapshot.tag, error });
    return { ...ready, machine, paused: await machine.pause() };
  };
  const made = await answered(launch, orAborted(run(), signal), runtime.config.readyTimeoutMs);
  return { ...child, ...made, identity, agent, scope: scope.keep(), homeScope: homeScope.keep() };
}

function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  work.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason as Error);
    if (signal.aborted) leave();
    signal.addEventListener("abort", leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}

/** Makes it the machine of a sandbox. Limits and rules apply before its guest runs again. */
export async function handOut(
  runtime: Pick<Runtime, "cgroups" | "config" | "engine" | "log" | "network">,
  ready: ReadyChild,
  request: StartRequest,
): Promise<SandboxMachine> {
  await using readyScope = ready.scope.keep();
  await using scope = new Scope();
  const { machine, agent, snapshot, slot } = ready;
  const { limits, network } = request;
  const group = makeGroup(runtime, ready, limits);
  // A group can be removed only when its machine has ended, so it is released last.
  if (group) scope.use(group);
  scope.use(readyScope.keep());
  const explain = diagnose(group, limits, snapshot.manifest.machine.memory_mib);
  const run = async () => {
    // Before the guest runs: what it dials first must not be denied by rules that are not its own.
    await Promise.all([holdToLimits(machine, group, limits), slot.apply(network, limits)]);
    asForeground(machine.process.pid);
    const step = { ...request, isConnected: network.mode !== "none" };
    // Sent first: the connection passes it on when the guest runs.
    const forked = completeFork(agent, step, ready);
    forked.catch(() => undefined);
    await ready.paused[Symbol.asyncDispose]();
    return forked;
  };
  const kernels = await answered({ ...ready, explain }, run(), runtime.config.readyTimeoutMs * handOutShare);
  await requireAttachable(runtime, ready);
  return sandboxMachine(runtime, ready, request, { machine, agent, kernels, explain, from: "pool" }, scope);
}
