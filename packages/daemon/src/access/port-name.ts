/**
 * Host names of ports: `3000-sb-….localhost`. Pages under such a name come from a guest, so the API is never
 * served under one, and a page under one never counts as the daemon's own. Pure.
 */
import { portLabel } from "@forkd/contract";

export type PortTarget = { readonly id: string; readonly port: number };

/** An entry of the setting `ports_domain`: `[SCHEME://]NAME[:PORT]`; scheme and port are those that clients use. */
export type PortsDomain = {
  readonly name: string;
  readonly scheme: "http" | "https" | undefined;
  readonly port: string | undefined;
};

const domainPattern =
  /^(?:(https?):\/\/)?([a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*)(?::(\d{1,5}))?$/i;

export function parsePortsDomain(text: string): PortsDomain | undefined {
  const [, scheme, name, port] = domainPattern.exec(text) ?? [];
  if (name === undefined) return undefined;
  const known = scheme?.toLowerCase();
  return {
    name: name.toLowerCase(),
    scheme: known === "http" || known === "https" ? known : undefined,
    port,
  };
}

const labelLike = /(?:^|\.)\d+-sb-[0-9a-f]+(?:\.|$)/;
const label = /^([1-9]\d{0,4})-(sb-[0-9a-f]{24})$/;

/** Whether a page under this name may come from a guest, whatever its domain is. `name` has lower case. */
export function isPortName(name: string): boolean {
  return labelLike.test(name);
}

/** The port that a name leads to. `name` has lower case. */
export function portOfName(name: string, domains: readonly PortsDomain[]): PortTarget | undefined {
  // With a trailing dot it is the same name.
  const plain = name.replace(/\.$/, "");
  const dot = plain.indexOf(".");
  const [, port, id] = label.exec(plain.slice(0, dot)) ?? [];
  if (dot < 0 || port === undefined || id === undefined || Number(port) > 65_535) return undefined;
  const domain = plain.slice(dot + 1);
  return domains.some((each) => each.name === domain) ? { id, port: Number(port) } : undefined;
}

/** The address of a port; `own` is that of the daemon. */
export function urlOfPort(
  { id, port }: PortTarget,
  domain: PortsDomain | undefined,
  own: string | undefined,
): string | undefined {
  if (domain === undefined || own === undefined) return undefined;
  const base = new URL(own);
  const scheme = domain.scheme ?? base.protocol.replace(":", "");
  // With a scheme the entry says all about the address, such as that of a proxy.
  const outer = domain.port ?? (domain.scheme === undefined ? base.port : "");
  return `${scheme}://${portLabel(id, port)}.${domain.name}${outer === "" ? "" : `:${outer}`}/`;
}
