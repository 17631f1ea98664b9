/**
 * E2B's network options → a policy of forkd. In E2B every allowed destination beats every denied one; here the
 * first rule that matches decides, so the rules that allow come first. Pure.
 */
import { isIP } from "node:net";
import type { AskedNetwork } from "@forkd/contract";
import { invalid, unsupported } from "./answer.ts";
import type { AskedE2bNetwork } from "./schemas.ts";

/** What a range may be at most, as in docs/guide/network.md */
const widest = 8;
const everything = new Set(["0.0.0.0/0", "::/0"]);
const hostName = /^(?:\*\.)?(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+\.?$/i;

type Given = {
  /** `allow_internet_access`; default: true */
  readonly internet?: boolean | null | undefined;
  readonly network?: AskedE2bNetwork | null | undefined;
};

/** Throws `unsupported` for options that have no counterpart, and `invalid_request`. */
export function policyOf({ internet, network }: Given): AskedNetwork {
  refuseUnsupported(network ?? undefined);
  const allowed = network?.allowOut ?? [];
  const denied = network?.denyOut ?? [];
  const isClosed = internet === false || denied.some((each) => everything.has(each));
  const allowRules = allowed.map((each) => allowRule(each, isClosed));
  const denyRules = denied.filter((each) => !everything.has(each)).map(denyRule);
  // The last rule: those of the snapshot and of the settings, which come after it, must not allow more.
  return isClosed
    ? { mode: "filtered", rules: [...allowRules, "deny *"] }
    : { mode: "open", rules: [...allowRules, ...denyRules] };
}

function refuseUnsupported(network: AskedE2bNetwork | undefined): void {
  const { rules, egressProxy, maskRequestHost, httpsPorts } = network ?? {};
  if (isGiven(rules))
    throw unsupported("network.rules", "requests are not changed on their way; use secrets of forkd instead");
  if (isGiven(egressProxy)) throw unsupported("network.egressProxy", "the host decides about proxies");
  if (isGiven(maskRequestHost))
    throw unsupported("network.maskRequestHost", "servers get the header Host of the client");
  if (isGiven(httpsPorts)) throw unsupported("network.httpsPorts", "servers in the sandbox get plain HTTP");
}

/** Empty objects and lists ask for nothing. */
function isGiven(value: unknown): boolean {
  if (value === undefined || value === null) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

function allowRule(text: string, isClosed: boolean): string {
  if (everything.has(text)) return "allow *";
  const address = addressOf(text);
  if (address !== undefined) {
    if (address.prefix !== undefined && address.prefix < widest)
      throw unsupported(`network.allowOut "${text}"`, `a range must not be larger than a /${widest}`);
    return `allow ${address.rule}`;
  }
  if (!hostName.test(text))
    throw invalid("network.allowOut", `"${text}" is not an IP address, a CIDR block or a host name`);
  if (!isClosed)
    throw invalid(
      "network.allowOut",
      `the host name "${text}" needs all other traffic to be denied: add "0.0.0.0/0" to network.denyOut`,
    );
  return `allow ${text.replace(/\.$/, "").toLowerCase()}`;
}

function denyRule(text: string): string {
  const address = addressOf(text);
  if (address === undefined)
    throw invalid("network.denyOut", `"${text}" is not an IP address or a CIDR block`);
  return `deny ${address.rule}`;
}

function addressOf(text: string): { rule: string; prefix: number | undefined } | undefined {
  const [address = "", length, ...rest] = text.split("/");
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return undefined;
  if (length !== undefined && (!/^\d{1,3}$/.test(length) || Number(length) > (version === 4 ? 32 : 128)))
    return undefined;
  return {
    rule: version === 4 ? text : `[${text}]`,
    prefix: length === undefined ? undefined : Number(length),
  };
}
