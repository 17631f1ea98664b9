/** The hosts that a secret is for: `name`, `*.name`, each with an optional `:port`. Pure. */
import { isIP } from "node:net";
import { normalName } from "../policy/host.ts";
import { gatewayHost } from "../proxy/intercept.ts";

const defaultPort = 443;

type SecretHost = {
  /** lower case ASCII without a final dot; of a wildcard the part after `*.` */
  readonly name: string;
  readonly isWildcard: boolean;
  readonly port: number;
};

/** The host, or a sentence part that says what is wrong with the text. */
export function parseSecretHost(text: string): SecretHost | string {
  const parts = /^(\*\.)?([^:*/@\s]+)(?::([0-9]{1,5}))?$/.exec(text);
  if (parts === null)
    return 'must be a name such as "api.example.com", "*.example.com" or "example.com:8443"';
  const [, star, host = "", digits] = parts;
  const name = normalName(host);
  if (name === undefined)
    return isIP(host) === 0 ? "is not a host name" : "is an address: a secret needs the name of a host";
  const port = digits === undefined ? defaultPort : Number(digits);
  if (port < 1 || port > 65_535) return "has a port that is not between 1 and 65535";
  if (star !== undefined && !name.includes(".")) return "is too wide: a wildcard needs two labels or more";
  if (name === gatewayHost || name.endsWith(`.${gatewayHost}`)) return "is reserved for the gateway";
  return { name, isWildcard: star !== undefined, port };
}

export function formatSecretHost({ name, isWildcard, port }: SecretHost): string {
  return `${isWildcard ? "*." : ""}${authorityOf(name, port)}`;
}

/** Lists of secrets stay the same objects until they change. */
const parsedLists = new WeakMap<readonly string[], readonly SecretHost[]>();

function parsed(hosts: readonly string[]): readonly SecretHost[] {
  let list = parsedLists.get(hosts);
  if (list === undefined) {
    list = hosts.map(parseSecretHost).filter((host) => typeof host !== "string");
    parsedLists.set(hosts, list);
  }
  return list;
}

/** A wildcard covers names at any depth below it, not the name itself. */
export function isHostOf(hosts: readonly string[], name: string, port: number): boolean {
  return parsed(hosts).some(
    (host) => host.port === port && (host.isWildcard ? name.endsWith(`.${host.name}`) : name === host.name),
  );
}

/** The host that the gateway sends requests to: the first one without a wildcard. */
export function targetOf(hosts: readonly string[]): SecretHost | undefined {
  return parsed(hosts).find(({ isWildcard }) => !isWildcard);
}

/** The value of a Host header. */
export function authorityOf(name: string, port: number): string {
  return port === defaultPort ? name : `${name}:${port}`;
}
