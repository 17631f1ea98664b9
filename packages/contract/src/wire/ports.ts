/** Names that reach a port of a sandbox through the daemon. Imports nothing. */

/** A raw TCP connection: `Upgrade: forkd-tcp` on tunnelPath(). */
export const tunnelProtocol = "forkd-tcp";

/** Requests below this path go to the port, without this prefix. */
export function proxyPath(id: string, port: number): string {
  return `/v1/sandboxes/${id}/ports/${port}/proxy/`;
}

export function tunnelPath(id: string, port: number): string {
  return `/v1/sandboxes/${id}/ports/${port}/tcp`;
}

/** The first label of the host name of a port. */
export function portLabel(id: string, port: number): string {
  return `${port}-${id}`;
}

/** The token of a port: in a query once, then as a cookie; or as a header. */
export const portToken = {
  query: "forkd_token",
  cookie: "forkd_port_token",
  header: "x-forkd-port-token",
} as const;
