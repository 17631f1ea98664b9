/**
 * A new sandbox and its first machine. prepareChild() can run ahead of need; startChild() makes the sandbox.
 */
import type { AskedLimits } from "@forkd/contract";
import { Scope } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import { childEnv, type SandboxFacts, type SandboxTimeouts } from "../sandbox/facts.ts";
import { guestIdentity, newSandboxId } from "../sandbox/paths.ts";
import { recordOf, type MachineFacts } from "../sandbox/record.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import { makeHome, prepareMachine } from "./prepare.ts";
import type { PreparedChild, PreparedLaunch } from "./prepared.ts";
import { startMachine } from "./start.ts";

type ChildRequest = {
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
  pooled: boolean;
};

export async function prepareChild(
  runtime: Pick<Runtime, "config" | "engine" | "images" | "network" | "places" | "store">,
  snapshot: StoredSnapshot,
  signal?: AbortSignal,
): Promise<PreparedChild> {
  await using homeScope = new Scope();
  const id = newSandboxId();
  const home = await makeHome(runtime, id, homeScope);
  const prepared = await prepareMachine(runtime, { id, number: 0, snapshot }, signal);
  return { ...prepared, home, homeScope: homeScope.keep() };
}

export async function startChild(
  runtime: Pick<Runtime, "cgroups" | "config" | "engine" | "log" | "network">,
  child: PreparedChild,
  request: ChildRequest,
): Promise<Sandbox> {
  await using homeScope = child.homeScope.keep();
  const facts: SandboxFacts = {
    id: child.id,
    identity: guestIdentity(child.id),
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
    const machine = await startMachine(runtime, child, {
      identity: facts.identity,
      env: childEnv(child.snapshot.manifest.env, facts, request.network),
      network: request.network,
      values: request.values,
      limits: request.limits,
      askedAt: request.askedAt,
      pooled: request.pooled,
    });
    sandbox.attachMachine(machine);
    await staged;
    return sandbox;
  } catch (error) {
    await sandbox[Symbol.asyncDispose]();
    throw error;
  }
}

function machineFacts({ number, machine, paths, snapshot, imageStamp }: PreparedLaunch): MachineFacts {
  return { number, process: machine.process, socketDir: paths.socketDir, base: snapshot, imageStamp };
}
