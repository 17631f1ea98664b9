/**
 * A compiled policy: what a machine may connect to. The first rule that matches decides; without one the mode
 * does. Ceilings are policies of the key and the host, and must allow the same.
 */
import type { Decision, Destination, MachinePolicy, NetworkMode, PolicyText, RuleText } from "../types.ts";
import { formatAddress, parseAddress } from "./address.ts";
import { hostAddresses, kindOf, type AddressKind } from "./address-kind.ts";
import { builtInPresets, parseRules, type Presets, type SourcedRule } from "./presets.ts";
import { mergeRanges, type PortRange } from "./rule.ts";
import { RuleTable } from "./rule-table.ts";

type Choice =
  | { allowed: true; by: "name" | "address" | "any" | "default"; rule?: RuleText | undefined }
  | { allowed: false; reason: string; rule?: RuleText | undefined; lacksAddressRule?: boolean };

export type UdpTarget = { readonly name?: string; readonly address?: string; readonly port: number };

export class Policy {
  readonly mode: NetworkMode;
  readonly #own: Level;
  readonly #ceilings: readonly Level[];

  private constructor(own: Level, ceilings: readonly Level[]) {
    this.mode = own.mode;
    this.#own = own;
    this.#ceilings = ceilings;
  }

  /** Throws AppError invalid_request for a rule that cannot be parsed. `ownAddresses`: see addressSet(). */
  static compile(
    { mode, rules, ceilings = [] }: PolicyText & { ceilings?: MachinePolicy["ceilings"] },
    options: { presets?: Presets; ownAddresses?: () => ReadonlySet<string> } = {},
  ): Policy {
    const { presets = builtInPresets, ownAddresses = hostAddresses } = options;
    const level = (text: PolicyText) => new Level(text.mode, parseRules(text.rules, presets), ownAddresses);
    return new Policy(level({ mode, rules }), ceilings.map(level));
  }

  decide(destination: Destination): Decision {
    const own = this.#own.decide(destination);
    if (!own.allowed) return refusal(own, destination);
    for (const ceiling of this.#ceilings) {
      const above = ceiling.decide(destination);
      if (above.allowed) continue;
      const reason = `the policy of the host or the key does not allow it: ${above.reason}`;
      return refusal({ ...above, reason }, destination);
    }
    return own;
  }

  /** False if no name at all is allowed at this port, so that the first bytes need not be read. */
  mayAllowName(port: number): boolean {
    return [this.#own, ...this.#ceilings].every((level) => level.mayAllowName(port));
  }

  /** Whether the name is allowed at any port. Only then is it resolved. */
  permitsName(name: string): boolean {
    const ports = new Set([1, ...[this.#own, ...this.#ceilings].flatMap((level) => level.portsAround(name))]);
    const protocols = ["tcp", "udp"] as const;
    return [...ports].some((port) =>
      protocols.some((protocol) => this.decide({ protocol, port, name }).allowed),
    );
  }

  /** Names and addresses for which UDP sockets are needed, each with one port. Wildcards are left out. */
  udpTargets(): UdpTarget[] {
    return this.#own.udpTargets();
  }

  /** UDP ports that the rules allow for a name. */
  udpPorts(name: string): number[] {
    const ports = new Set(this.#own.udpPortsInRules());
    return [...ports].filter((port) => this.decide({ protocol: "udp", port, name }).allowed);
  }
}

/** One mode with its rules. */
class Level {
  readonly mode: NetworkMode;
  readonly #rules: readonly SourcedRule[];
  readonly #table: RuleTable;
  readonly #namePorts: readonly PortRange[];
  readonly #ownAddresses: () => ReadonlySet<string>;

  constructor(mode: NetworkMode, rules: readonly SourcedRule[], ownAddresses: () => ReadonlySet<string>) {
    this.mode = mode;
    this.#rules = rules;
    this.#table = new RuleTable(rules);
    this.#ownAddresses = ownAddresses;
    const naming = rules.filter(({ rule }) => rule.action === "allow" && rule.target.kind !== "cidr");
    this.#namePorts = mergeRanges(naming.flatMap(({ rule }) => rule.ports ?? [[1, 65535]]));
  }

  decide(destination: Destination): Choice {
    if (this.mode === "none") return { allowed: false, reason: "the network is off" };
    const { name } = destination;
    const address = destination.address === undefined ? undefined : parseAddress(destination.address);
    if (address === undefined && (name === undefined || destination.address !== undefined))
      return { allowed: false, reason: "it has neither a name nor a valid address" };
    const kind = address === undefined ? undefined : kindOf(address, this.#ownAddresses());
    if (kind === "synthetic")
      return { allowed: false, reason: "the address does not belong to a known name" };

    const byName = name === undefined ? Number.POSITIVE_INFINITY : this.#table.byName(name, destination);
    const byAddress =
      address === undefined ? Number.POSITIVE_INFINITY : this.#table.byAddress(address, destination);
    const isPublic = kind === undefined || kind === "public";
    const byAny = this.#table.byAny(destination, isPublic);

    const first = Math.min(byName, byAddress, byAny);
    const matched = this.#rules[first];
    if (matched?.rule.action === "deny")
      return { allowed: false, reason: "a rule denies it", rule: matched.text };
    // A name must not lead into a private network, unless a rule names the address.
    if (!isPublic && this.#rules[byAddress]?.rule.action !== "allow")
      return {
        allowed: false,
        reason: `the address is not public (${kindText(kind)})`,
        lacksAddressRule: true,
      };
    if (matched) {
      const by = first === byName ? "name" : first === byAddress ? "address" : "any";
      return { allowed: true, by, rule: matched.text };
    }
    if (this.mode === "open" && destination.protocol === "tcp") return { allowed: true, by: "default" };
    return { allowed: false, reason: "no rule allows it" };
  }

  mayAllowName(port: number): boolean {
    if (this.mode !== "filtered") return this.mode === "open";
    return this.#namePorts.some(([first, last]) => first <= port && port <= last);
  }

  /** One port of each part of the port numbers that the rules for a name distinguish. */
  portsAround(name: string): number[] {
    const ranges = this.#table.indexesFor(name).flatMap((index) => this.#rules[index]?.rule.ports ?? []);
    return ranges.flatMap(([first, last]) => (last < 65535 ? [first, last + 1] : [first]));
  }

  udpTargets(): UdpTarget[] {
    return this.#udpRules().flatMap(({ rule: { target, ports } }): UdpTarget[] => {
      if (target.kind === "name") return portsIn(ports).map((port) => ({ name: target.name, port }));
      if (target.kind !== "cidr") return [];
      const text = formatAddress(target.address);
      return portsIn(ports).map((port) => ({ address: text, port }));
    });
  }

  udpPortsInRules(): number[] {
    return this.#udpRules().flatMap(({ rule }) => portsIn(rule.ports));
  }

  #udpRules(): readonly SourcedRule[] {
    if (this.mode === "none") return [];
    return this.#rules.filter(({ rule }) => rule.action === "allow" && rule.protocol === "udp");
  }
}

/** parseRule() bounds their number for UDP. */
function portsIn(ranges: readonly PortRange[] | undefined): number[] {
  return (ranges ?? []).flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, index) => first + index),
  );
}

function kindText(kind: AddressKind): string {
  return kind === "host" ? "an address of the host" : kind;
}

function refusal(
  { reason, rule, lacksAddressRule = false }: Choice & { allowed: false },
  { protocol, port, name, address }: Destination,
): Decision {
  const host = address?.includes(":") ? `[${address}]` : address;
  const target = lacksAddressRule ? (host ?? name) : (name ?? host);
  const suggestion = `allow ${protocol === "udp" ? "udp " : ""}${target ?? "*"}:${port}`;
  return { allowed: false, reason, ...(rule !== undefined && { rule }), suggestion };
}
