/**
 * A new sandbox and its first machine. prepareChild() can run ahead of need; startChild() and handOutChild() make
 * the sandbox.
 */
import type { AskedLimits } from "@forkd/contract";
import { Scope, type Trace } from "@forkd/base";
import type { ProcessId } from "@forkd/machine";
import type { StoredSnapshot } from "@forkd/store";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import { childEnv, type SandboxFacts, type SandboxTimeouts } from "../sandbox/facts.ts";
import { guestIdentity, newSandboxId, type GuestIdentity } from "../sandbox/paths.ts";
import { recordOf, type MachineFacts } from "../sandbox/record.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { makeHome, prepareMachine } from "./prepare.ts";
import type { PreparedChild, PreparedLaunch, ReadyChild } from "./prepared.ts";
import { handOut } from "./ready-child.ts";
import { startMachine, type StartRequest } from "./start.ts";

export type ChildRequest = {
  index: number;
  env: Record<string, string>;
  values: unknown;
  labels: Record<string, string>;
  ttlSecs: number | undefined;
  workspace?: string | undefined;
  owner?: string | undefined;
  limits?: AskedLimits | undefined;
  timeouts?: SandboxTimeouts | undefined;
  network: SandboxNetwork;
  /** when the caller asked, for ready_ms */
  askedAt: number;
  /** default: now */
  createdAt?: number | undefined;
  trace?: Trace | undefined;
};

export async function prepareChild(
  runtime: Pick<Runtime, "config" | "engine" | "images" | "network" | "places" | "store">,
  snapshot: StoredSnapshot,
  {
    signal,
    trace,
    isBackground = false,
  }: { signal?: AbortSignal | undefined; trace?: Trace | undefined; isBackground?: boolean } = {},
): Promise<PreparedChild> {
  await using homeScope = new Scope();
  const id = newSandboxId();
  const home = await makeHome(runtime, id, homeScope);
  const prepared = await prepareMachine(runtime, { id, number: 0, snapshot, isBackground, trace }, signal);
  return { ...prepared, home, homeScope: homeScope.keep() };
}

type Runs = Pick<Runtime, "cgroups" | "config" | "engine" | "log" | "network">;

export function startChild(runtime: Runs, child: PreparedChild, request: ChildRequest): Promise<Sandbox> {
  return becomeSandbox(child, guestIdentity(child.id), request, (start) =>
    startMachine(runtime, child, start),
  );
}

/** Takes the child over: a failure leaves nothing of it. */
export function handOutChild(runtime: Runs, child: ReadyChild, request: ChildRequest): Promise<Sandbox> {
  return becomeSandbox(child, child.identity, request, (start) => handOut(runtime, child, start));
}

/** `start` takes over the machine's scope, whether it fails or not. */
async function becomeSandbox(
  child: Omit<PreparedChild, "machine"> & { machine: { process: ProcessId } },
  identity: GuestIdentity,
  request: ChildRequest,
  start: (request: StartRequest) => Promise<SandboxMachine>,
): Promise<Sandbox> {
  await using homeScope = child.homeScope.keep();
  const facts: SandboxFacts = {
    id: child.id,
    identity,
    env: request.env,
    labels: request.labels,
    index: request.index,
    createdAt: request.createdAt ?? Date.now() / 1000,
    workspace: request.workspace,
    owner: request.owner,
    limits: request.limits,
  };
  const sandbox = new Sandbox({
    facts,
    home: child.home,
    homeScope: homeScope.keep(),
    snapshotTag: child.snapshot.tag,
    ttlSecs: request.ttlSecs,
    timeouts: request.timeouts,
    network: request.network,
    machines: 1,
  });
  // Written while the machine starts. The caller commits it when the sandbox is complete.
  const staged = sandbox.record.stage(
    recordOf(sandbox, {
      ...sandbox.recordState,
      machine: machineFacts(child),
      expiresAt: sandbox.nextExpiry(),
    }),
  );
  staged.catch(() => undefined);
  try {
    const machine = await start({
      identity,
      env: childEnv(child.snapshot.manifest.env, facts, request.network),
      network: request.network,
      values: request.values,
      limits: request.limits,
      askedAt: request.askedAt,
      trace: request.trace,
    });
    sandbox.attachMachine(machine);
    await staged;
    request.trace?.mark("staged");
    return sandbox;
  } catch (error) {
    await sandbox[Symbol.asyncDispose]();
    throw error;
  }
}

function machineFacts({
  number,
  machine,
  paths,
  snapshot,
  image,
}: Omit<PreparedLaunch, "machine"> & { machine: { process: ProcessId } }): MachineFacts {
  return { number, process: machine.process, socketDir: paths.socketDir, base: snapshot, image };
}
