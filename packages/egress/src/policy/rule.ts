/**
 * The grammar of rules:
 *
 *   RULE  = ("allow" | "deny") ["tcp" | "udp"] DESTINATION [":" PORTS]
 *   DESTINATION = NAME | "*." NAME | ADDRESS | ADDRESS "/" PREFIX | "[" IPV6 ["/" PREFIX] "]" | "*" | "preset:" WORD
 *   PORTS = "*" | (PORT | PORT "-" PORT) ("," …)
 *
 * `*.example.com` means the names below example.com at any depth, not example.com. `allow *` means every public
 * address, `deny *` every address.
 * Without a protocol a rule that allows is for TCP, and a rule that denies is for TCP and UDP. UDP needs a socket
 * per address and port, so a rule that allows it names one host and its ports.
 */
import { advice, AppError } from "@forkd/contract";
import type { Protocol, RuleText } from "../types.ts";
import { formatAddress, maskAddress, parseAddress, type Address } from "./address.ts";
import { isNumeric, normalName } from "./host.ts";

export type PortRange = readonly [first: number, last: number];

type RuleTarget =
  | { readonly kind: "name"; readonly name: string }
  /** names below this one */
  | { readonly kind: "wildcard"; readonly suffix: string }
  | { readonly kind: "cidr"; readonly address: Address; readonly prefix: number }
  | { readonly kind: "any" }
  | { readonly kind: "preset"; readonly preset: string };

export type Rule = {
  readonly action: "allow" | "deny";
  /** undefined: not stated */
  readonly protocol: Protocol | undefined;
  readonly target: RuleTarget;
  /** sorted and separate; undefined: all */
  readonly ports: readonly PortRange[] | undefined;
};

const maxRuleLength = 512;
const maxPortRanges = 32;
const maxUdpPorts = 16;
/** A larger range that a rule allows would contain private addresses by accident. fc00::/7 is one range. */
const minPrefix = { 4: 8, 6: 7 } as const;

/** Throws AppError invalid_request, which names the part that is wrong. */
export function parseRule(text: RuleText): Rule {
  if (typeof text !== "string" || text.length > maxRuleLength)
    throw wrong(String(text).slice(0, 40), "it is too long", `Use at most ${maxRuleLength} characters`);
  const words = text.trim().split(/\s+/);
  const [action, ...rest] = words;
  if (action !== "allow" && action !== "deny")
    throw wrong(text, `"${action ?? ""}" is not an action`, "Start the rule with allow or deny");
  let protocol: Protocol | undefined;
  if (rest.length > 1) {
    const [word = ""] = rest.splice(0, 1);
    if (word !== "tcp" && word !== "udp")
      throw wrong(text, `"${word}" is not a protocol`, "Use tcp or udp, or leave it out");
    protocol = word;
  }
  const [destination, extra] = rest;
  if (destination === undefined || destination === "")
    throw wrong(text, "it has no destination", "Add a name, an address or *, such as allow example.com:443");
  if (extra !== undefined)
    throw wrong(
      text,
      `"${extra}" is one word too many`,
      "Write ports directly after a colon, without spaces",
    );
  const rule: Rule = { action, protocol, ...destinationOf(text, destination) };
  checkSize(text, rule);
  return rule;
}

/** The rule in its normal form; parseRule() of it gives an equal rule. */
export function formatRule({ action, protocol, target, ports }: Rule): RuleText {
  const portText = ports?.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join();
  const words = [
    action,
    ...(protocol === undefined ? [] : [protocol]),
    targetText(target) + (portText === undefined ? "" : `:${portText}`),
  ];
  return words.join(" ");
}

function targetText(target: RuleTarget): string {
  switch (target.kind) {
    case "name":
      return target.name;
    case "wildcard":
      return `*.${target.suffix}`;
    case "any":
      return "*";
    case "preset":
      return `preset:${target.preset}`;
    case "cidr": {
      const { address, prefix } = target;
      const isOne = prefix === (address.family === 4 ? 32 : 128);
      const text = `${formatAddress(address)}${isOne ? "" : `/${prefix}`}`;
      return address.family === 4 ? text : `[${text}]`;
    }
  }
}

function destinationOf(text: RuleText, destination: string): Pick<Rule, "target" | "ports"> {
  if (destination.startsWith("preset:")) {
    const preset = destination.slice("preset:".length);
    if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(preset))
      throw wrong(
        text,
        `"${preset}" is not the name of a preset`,
        "Write only its name: a preset has its own ports",
      );
    return { target: { kind: "preset", preset }, ports: undefined };
  }
  const bracketed = /^\[([^\]]*)\](\/\d+)?(?::(.*))?$/.exec(destination);
  if (bracketed) {
    const inner = `${bracketed[1]}${bracketed[2] ?? ""}`;
    return { target: cidrOf(text, inner), ports: portsOf(text, bracketed[3]) };
  }
  const colons = destination.split(":").length - 1;
  // Several colons without brackets: an IPv6 address, whose ports cannot be recognised.
  if (colons > 1) return { target: cidrOf(text, destination), ports: undefined };
  const [host = "", ports] = destination.split(":");
  return { target: hostTarget(text, host), ports: portsOf(text, ports) };
}

function hostTarget(text: RuleText, host: string): RuleTarget {
  if (host === "*") return { kind: "any" };
  if (host.startsWith("*.")) {
    const suffix = normalName(host.slice(2));
    if (suffix === undefined) throw notAName(text, host.slice(2));
    return { kind: "wildcard", suffix };
  }
  if (host.includes("*"))
    throw wrong(
      text,
      `"${host}" has a * that is not its first part`,
      "Use * alone, or *.NAME for all names below NAME",
    );
  if (host.includes("/") || parseAddress(host)) return cidrOf(text, host);
  const name = normalName(host);
  if (name === undefined) throw notAName(text, host);
  return { kind: "name", name };
}

function notAName(text: RuleText, host: string): AppError {
  const last = host.toLowerCase().replace(/\.$/, "").split(".").at(-1) ?? "";
  return isNumeric(last)
    ? wrong(
        text,
        `"${host}" is not an address in its usual form`,
        "Write an IPv4 address as four decimal numbers",
      )
    : wrong(text, `"${host}" is not a host name`, "Use letters, digits and hyphens, separated by dots");
}

function cidrOf(text: RuleText, range: string): RuleTarget & { kind: "cidr" } {
  const [host = "", length, extra] = range.split("/");
  const address = parseAddress(host);
  if (!address || extra !== undefined)
    throw wrong(
      text,
      `"${range}" is not an address or a range`,
      "Use a form such as 10.1.2.0/24 or [2001:db8::/32]:443",
    );
  const most = address.family === 4 ? 32 : 128;
  if (length === undefined) return { kind: "cidr", address, prefix: most };
  const prefix = Number(length);
  if (!/^\d{1,3}$/.test(length) || prefix > most)
    throw wrong(text, `"/${length}" is not a prefix length`, `Use a number from 0 to ${most}`);
  const first = maskAddress(address, prefix);
  if (first.value !== address.value)
    throw wrong(
      text,
      `"${range}" does not start at the first address of its range`,
      `Write ${formatAddress(first)}/${prefix}`,
    );
  return { kind: "cidr", address, prefix };
}

function portsOf(text: RuleText, ports: string | undefined): readonly PortRange[] | undefined {
  if (ports === undefined || ports === "*") return undefined;
  const parts = ports.split(",");
  if (parts.length > maxPortRanges)
    throw wrong(text, `it has ${parts.length} parts of ports`, `Use at most ${maxPortRanges}`);
  const ranges = parts.map((part): PortRange => {
    const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
    const first = Number(match?.[1]);
    const last = Number(match?.[2] ?? match?.[1]);
    if (!match || first < 1 || last > 65535 || first > last)
      throw wrong(
        text,
        `"${part}" is not a port or a range of ports`,
        "Use numbers from 1 to 65535, such as 80,443 or 8000-8100",
      );
    return [first, last];
  });
  return mergeRanges(ranges);
}

/** Sorted, and without ranges that touch each other. */
export function mergeRanges(ranges: readonly PortRange[]): PortRange[] {
  const merged: [number, number][] = [];
  for (const [first, last] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const previous = merged.at(-1);
    if (previous && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else merged.push([first, last]);
  }
  return merged;
}

function checkSize(text: RuleText, { action, protocol, target, ports }: Rule): void {
  if (action === "deny") return;
  if (target.kind === "cidr" && target.prefix < minPrefix[target.address.family])
    throw wrong(
      text,
      `/${target.prefix} contains private addresses, too`,
      "Use * for every public address, or a smaller range",
    );
  if (protocol !== "udp") return;
  const isOne = target.kind !== "cidr" || target.prefix === (target.address.family === 4 ? 32 : 128);
  if (target.kind === "any" || target.kind === "preset" || !isOne)
    throw wrong(text, "UDP is allowed for one host at a time", "Name a host or one address");
  const count = ports?.reduce((sum, [first, last]) => sum + last - first + 1, 0) ?? Number.POSITIVE_INFINITY;
  if (count > maxUdpPorts)
    throw wrong(text, "it allows too many UDP ports", `Name at most ${maxUdpPorts} ports, such as :123`);
}

function wrong(text: string, problem: string, remedy: string): AppError {
  return new AppError("invalid_request", `Cannot use the rule "${text}": ${problem}`, {
    details: { rule: text },
    remedy: advice(remedy),
  });
}
