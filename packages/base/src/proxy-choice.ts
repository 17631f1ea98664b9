/** Which HTTP proxy leads to a host, as curl reads the variables of the environment. */
import { BlockList, isIP } from "node:net";

type UpstreamProxies = {
  /** URLs, as in the variables http_proxy and https_proxy */
  readonly http?: string | undefined;
  readonly https?: string | undefined;
  /** names, suffixes, addresses and subnets to connect to directly, separated by commas */
  readonly none?: string | undefined;
};

export type UpstreamProxy = {
  readonly host: string;
  readonly port: number;
  /** value of Proxy-Authorization */
  readonly authorization?: string | undefined;
};

/** The variables in lower case come first. */
export function proxiesOf(environment: NodeJS.ProcessEnv): UpstreamProxies {
  const of = (name: string) => environment[name] ?? environment[name.toUpperCase()];
  return { http: of("http_proxy"), https: of("https_proxy"), none: of("no_proxy") };
}

export class ProxyChoice {
  readonly #http: UpstreamProxy | undefined;
  readonly #https: UpstreamProxy | undefined;
  readonly #names: readonly string[];
  readonly #subnets = new BlockList();

  /** Throws if a variable names something that is not an HTTP proxy. */
  constructor({ http, https, none = "" }: UpstreamProxies = {}) {
    this.#http = readProxy(http);
    this.#https = readProxy(https);
    const parts = none.split(",").flatMap((part) => part.trim().toLowerCase() || []);
    this.#names = parts.filter((part) => !this.#addSubnet(part));
  }

  /** `http` is for requests that are sent as plain HTTP, `https` for everything else. */
  proxyFor(host: string, port: number, scheme: "http" | "https"): UpstreamProxy | undefined {
    const family = isIP(host);
    const isDirect =
      (family !== 0 && this.#subnets.check(host, family === 6 ? "ipv6" : "ipv4")) ||
      this.#names.some((part) => {
        if (part === "*" || part === `${host}:${port}`) return true;
        const name = part.replace(/^\*?\./, "");
        return host === name || host.endsWith(`.${name}`);
      });
    if (isDirect) return undefined;
    return scheme === "http" ? this.#http : this.#https;
  }

  /** `10.0.0.0/8`. False if it is not a subnet. */
  #addSubnet(part: string): boolean {
    const [, address = "", bits = ""] = /^([0-9a-f.:]+)\/(\d{1,3})$/.exec(part) ?? [];
    const family = isIP(address);
    if (family === 0 || Number(bits) > (family === 6 ? 128 : 32)) return false;
    this.#subnets.addSubnet(address, Number(bits), family === 6 ? "ipv6" : "ipv4");
    return true;
  }
}

function readProxy(text: string | undefined): UpstreamProxy | undefined {
  if (text === undefined || text === "") return undefined;
  const named = text.includes("://") ? text : `http://${text}`;
  const url = URL.canParse(named) ? new URL(named) : undefined;
  if (url?.protocol !== "http:")
    throw new Error(`Cannot use the proxy "${url?.host ?? "of the environment"}": only http:// is supported`);
  const user = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? 80 : Number(url.port),
    ...(user !== ":" && { authorization: `Basic ${Buffer.from(user).toString("base64")}` }),
  };
}
