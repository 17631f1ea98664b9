/**
 * The network of one sandbox: what was asked for, what its snapshot and the settings add, and what the caller
 * may not exceed. Pure, but for the texts of presets.
 */
import type { AskedNetwork, NetworkMode } from "@forkd/contract";
import type { MachinePolicy, PolicyText } from "@forkd/egress";
import type { Caller } from "../context.ts";

/** It may change at any time, and it is in the record of the sandbox. */
export type SandboxNetwork = {
  readonly mode: NetworkMode;
  /** its own rules */
  readonly rules: readonly string[];
  /** those of its snapshot, which follow */
  readonly inherited: readonly string[];
  /** of the keys that made or changed it */
  readonly ceilings: readonly PolicyText[];
  /** placeholders by the names of its secrets */
  readonly secrets: Readonly<Record<string, string>>;
};

/** For machines that an older daemon started, and for sandboxes without a machine. */
export const noNetwork: SandboxNetwork = {
  mode: "none",
  rules: [],
  inherited: [],
  ceilings: [],
  secrets: {},
};

/** What every sandbox gets by the settings. */
export type NetworkDefaults = {
  readonly mode: NetworkMode;
  /** after the rules of sandbox and snapshot */
  readonly rules: readonly string[];
  /** before all other rules */
  readonly deny: readonly string[];
};

/** What a snapshot says about the network of its children. */
type SnapshotNetwork = {
  mode?: NetworkMode | undefined;
  rules?: string[] | undefined;
  /** of the sandbox that was branched; its children keep them */
  ceilings?: { mode: NetworkMode; rules: string[] }[] | undefined;
};

export function newNetwork(parts: {
  asked: AskedNetwork | undefined;
  snapshot: SnapshotNetwork | undefined;
  defaults: NetworkDefaults;
  caller: Caller | undefined;
  secrets: Readonly<Record<string, string>>;
}): SandboxNetwork {
  const { asked, snapshot, defaults, caller, secrets } = parts;
  return {
    mode: asked?.mode ?? snapshot?.mode ?? defaults.mode,
    rules: [...(asked?.rules ?? [])],
    inherited: [...(snapshot?.rules ?? [])],
    ceilings: withCeiling(snapshot?.ceilings ?? [], caller),
    secrets,
  };
}

/** The network of a branch's child: that of the source, with what was asked for before it. */
export function branchedNetwork(
  source: SandboxNetwork,
  asked: AskedNetwork | undefined,
  caller: Caller | undefined,
  secrets: Readonly<Record<string, string>>,
): SandboxNetwork {
  return {
    mode: asked?.mode ?? source.mode,
    rules: [...(asked?.rules ?? []), ...source.rules],
    inherited: source.inherited,
    ceilings: withCeiling(source.ceilings, caller),
    secrets,
  };
}

/** A caller with a ceiling leaves it on everything that it changes. */
export function withCeiling(
  ceilings: readonly PolicyText[],
  caller: Caller | undefined,
): readonly PolicyText[] {
  const own = caller?.network;
  if (!own) return ceilings;
  const text = JSON.stringify(own);
  return ceilings.some((each) => JSON.stringify(each) === text) ? ceilings : [...ceilings, own];
}

/** What the proxy applies; `expand` replaces presets by their rules. */
export function policyOf(
  network: SandboxNetwork,
  defaults: NetworkDefaults,
  expand: (rules: readonly string[]) => string[],
): MachinePolicy {
  return {
    mode: network.mode,
    // The first match decides, so what the settings deny cannot be allowed again.
    rules: expand([...defaults.deny, ...network.rules, ...network.inherited, ...defaults.rules]),
    ceilings: network.ceilings.map(({ mode, rules }) => ({ mode, rules: expand(rules) })),
  };
}

/** What a branch keeps of the network of its source. */
export function toSnapshotNetwork({ mode, rules, inherited, ceilings }: SandboxNetwork): SnapshotNetwork {
  const kept = ceilings.map((each) => ({ mode: each.mode, rules: [...each.rules] }));
  return { mode, rules: [...rules, ...inherited], ...(kept.length > 0 && { ceilings: kept }) };
}
