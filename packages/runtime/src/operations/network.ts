/** The network of a sandbox: look at it, change it, read its log. Presets of rules. */
import {
  advice,
  AppError,
  type NetworkInfo,
  type NetworkLogEntry,
  type ParsedOf,
  type PresetInfo,
} from "@forkd/contract";
import type { Context } from "../context.ts";
import { placeholdersOf } from "../network/asked-network.ts";
import { changeNetwork } from "../network/change-network.ts";
import { withCeiling, type SandboxNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

export function getNetwork(
  runtime: Pick<Runtime, "network" | "registry">,
  { id }: { id: string },
): Promise<NetworkInfo> {
  return describe(runtime, runtime.registry.get(id));
}

export async function setNetwork(
  runtime: Pick<Runtime, "network" | "registry">,
  request: ParsedOf<"setNetwork">,
  { caller, signal }: Context,
): Promise<NetworkInfo> {
  const sandbox = runtime.registry.get(request.id);
  runtime.network.requireDevice();
  await sandbox.exclusively(signal, async () => {
    sandbox.requireAlive();
    const { network: before } = sandbox;
    const secrets = request.secrets && placeholdersOf(runtime.network, request.secrets, caller);
    const network: SandboxNetwork = {
      mode: request.mode ?? before.mode,
      rules: [...request.add, ...without(request.rules ?? before.rules, request.remove)],
      inherited: request.rules ? [] : without(before.inherited, []),
      ceilings: withCeiling(before.ceilings, caller),
      secrets: secrets ?? before.secrets,
    };
    runtime.network.check(network);
    await changeNetwork(sandbox, network);
  });
  return describe(runtime, sandbox);
}

/** Each rule must be there: a mistyped one would stay in force unseen. */
function without(rules: readonly string[], removed: readonly string[]): string[] {
  const unknown = removed.find((rule) => !rules.includes(rule));
  if (unknown !== undefined)
    throw new AppError("invalid_request", `Invalid request: remove: the sandbox has no rule "${unknown}"`, {
      details: { issues: [{ path: "remove", message: `there is no rule "${unknown}"` }], rules: [...rules] },
      remedy: advice("Give rules as the network of the sandbox lists them."),
    });
  return rules.filter((rule) => !removed.includes(rule));
}

async function describe(
  { network: service }: Pick<Runtime, "network">,
  sandbox: Sandbox,
): Promise<NetworkInfo> {
  const { network } = sandbox;
  const slot = sandbox.machineAtWork?.slot;
  const note = slot?.note;
  const from = (rules: readonly string[], source: NetworkInfo["rules"][number]["from"]) =>
    rules.map((rule) => ({ rule, from: source }));
  const counted = await slot?.counters();
  return {
    mode: network.mode,
    device: slot?.device ?? "none",
    ...(note !== undefined && { note }),
    rules: [
      ...from(service.defaults.deny, "settings"),
      ...from(network.rules, "sandbox"),
      ...from(network.inherited, "snapshot"),
      ...from(service.defaults.rules, "settings"),
    ],
    ceilings: network.ceilings.map(({ mode, rules }) => ({ from: "key", mode, rules: [...rules] })),
    secrets: Object.keys(network.secrets),
    counters: {
      connections: counted?.connections ?? 0,
      open_connections: counted?.openConnections ?? 0,
      denied: counted?.denied ?? 0,
      failed: counted?.failed ?? 0,
      bytes_sent: counted?.bytesOut ?? 0,
      bytes_received: counted?.bytesIn ?? 0,
      queries: counted?.queries ?? 0,
    },
  };
}

export function networkLog(
  runtime: Pick<Runtime, "registry">,
  { id, follow, tail }: ParsedOf<"networkLog">,
  { signal }: Context,
): AsyncIterable<NetworkLogEntry> {
  const { slot } = runtime.registry.get(id).current;
  return slot.log({ tail, follow, signal });
}

export function listPresets({ network }: Pick<Runtime, "network">): PresetInfo[] {
  return network.presets.list();
}

export async function setPreset(
  { network }: Pick<Runtime, "network">,
  { name, rules }: ParsedOf<"setPreset">,
): Promise<PresetInfo> {
  const preset = await network.presets.set(name, rules);
  await network.refresh();
  return preset;
}

/** A preset that sandboxes use cannot be removed from under them, unless it is bundled. */
export async function removePreset(
  { network, registry }: Pick<Runtime, "network" | "registry">,
  { name }: { name: string },
): Promise<void> {
  const word = `preset:${name}`;
  const isNamed = (rules: readonly string[]) => rules.some((rule) => rule.split(/\s+/).includes(word));
  const user = registry
    .all()
    .find(({ network: { rules, inherited, ceilings } }) =>
      isNamed([...rules, ...inherited, ...ceilings.flatMap((ceiling) => ceiling.rules)]),
    );
  const { rules: always, deny } = network.defaults;
  const isAdded = network.presets.list().some((preset) => preset.name === name && preset.origin === "added");
  if (isAdded && user)
    throw new AppError("wrong_state", `Cannot remove preset "${name}": ${user.id} uses it`, {
      details: { name, sandbox: user.id },
    });
  if (isAdded && isNamed([...always, ...deny]))
    throw new AppError("wrong_state", `Cannot remove preset "${name}": the settings use it`, {
      details: { name },
    });
  await network.presets.remove(name);
  await network.refresh();
}
