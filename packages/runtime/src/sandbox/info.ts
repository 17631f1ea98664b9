/** A sandbox as the API shows it. */
import type { SandboxInfo } from "@forkd/contract";
import type { Manifest } from "@forkd/store";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { SandboxMachine } from "./sandbox-machine.ts";
import { reasonFields, type EndReason } from "./exit-reason.ts";
import type { SandboxFacts, SandboxShape, SandboxTimeouts } from "./facts.ts";
import { lastAttached, publicState, reasonOf, type SandboxState } from "./states.ts";

/** The parts of a sandbox that are shown. */
type ShownSandbox = {
  readonly facts: SandboxFacts;
  readonly status: SandboxState;
  readonly ttlSecs: number | undefined;
  readonly timeouts: SandboxTimeouts;
  readonly network: SandboxNetwork;
  readonly expiresAt: number | undefined;
  readonly branchCount: number;
  /** why it runs although its time is over */
  readonly pauseProblem: EndReason | undefined;
};

export function sandboxInfo(sandbox: ShownSandbox): SandboxInfo {
  const { facts, expiresAt } = sandbox;
  const { saved, snapshotTag } = sandbox.status.origin;
  const state = publicState(sandbox.status);
  // A dead sandbox is still shown with the shape that it had.
  const machine = lastAttached(sandbox.status)?.machine;
  const shape = (machine?.base ?? saved?.snapshot)?.manifest;
  const reason = reasonOf(sandbox.status) ?? sandbox.pauseProblem;
  return {
    id: facts.id,
    snapshot_tag: snapshotTag,
    state,
    ...(reason && reasonFields(reason)),
    created_at_unix: facts.createdAt,
    ...(expiresAt !== undefined && { expires_at_unix: expiresAt }),
    ...(machine && state === "running" && { pid: machine.machine.process.pid }),
    index: facts.index,
    hostname: facts.identity.hostname,
    labels: { ...facts.labels },
    ...shapeFields(facts, shape, machine?.languages),
    ready_ms: Math.round((machine?.readyMs ?? 0) * 10) / 10,
    from: machine?.from ?? "start",
    ...(state === "paused" && saved && { paused_at_unix: saved.savedAt }),
    branch_count: sandbox.branchCount,
    ...(facts.workspace !== undefined && { workspace: facts.workspace }),
    ...(facts.owner !== undefined && { owner: facts.owner }),
    ...limitFields(sandbox),
    ...(machine && machine.notEnforced.length > 0 && { limits_not_enforced: [...machine.notEnforced] }),
    ...timeoutFields(sandbox),
    ...(machine && state === "running" && { jail: machine.machine.jail }),
    network: networkFields(sandbox, machine),
    ...secretFields(sandbox),
  };
}

function shapeFields(
  { shape: last }: SandboxFacts,
  manifest: Manifest | undefined,
  languages: readonly string[] | undefined,
): SandboxShape {
  return {
    vcpus: manifest?.machine.vcpus ?? last?.vcpus ?? 0,
    memory_mib: manifest?.machine.memory_mib ?? last?.memory_mib ?? 0,
    accelerator: manifest?.machine.accelerator ?? last?.accelerator ?? "tcg",
    languages: [...(languages ?? manifest?.kernels.map(({ language }) => language) ?? last?.languages ?? [])],
  };
}

function networkFields(
  { network }: ShownSandbox,
  machine: SandboxMachine | undefined,
): SandboxInfo["network"] {
  const { device = "none", note } = machine?.slot ?? {};
  return { mode: network.mode, device, ...(note !== undefined && { note }) };
}

function secretFields({ network }: ShownSandbox): Partial<SandboxInfo> {
  const names = Object.keys(network.secrets);
  return names.length > 0 ? { secrets: names } : {};
}

function limitFields({ facts }: ShownSandbox): Partial<SandboxInfo> {
  if (!facts.limits) return {};
  const { best_effort: _, ...limits } = facts.limits;
  return { limits };
}

function timeoutFields({ timeouts, ttlSecs }: ShownSandbox): Partial<SandboxInfo> {
  const { idleSecs, onTimeout, autoResume } = timeouts;
  return {
    ...(idleSecs !== undefined && { idle_timeout_secs: idleSecs }),
    ...((idleSecs !== undefined || ttlSecs !== undefined) && { on_timeout: onTimeout }),
    ...(autoResume && { auto_resume: true }),
  };
}
