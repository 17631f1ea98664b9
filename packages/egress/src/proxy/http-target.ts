/** Which host a request is for. Guests write it: nothing is repaired, and what can be read in two ways is refused. */
import type http from "node:http";
import { parseAuthority, type Host } from "../policy/host.ts";
import type { Dial } from "./connection.ts";
import { headerValues } from "./http-headers.ts";
import { gatewayHost } from "./intercept.ts";

export type Requested = {
  readonly host: Host | undefined;
  readonly dial: Dial;
  readonly path: string;
  readonly authority: string | undefined;
};
export type Wrong = { readonly status: number; readonly text: string };

/** By its request line and its Host header. */
export function readTarget(request: http.IncomingMessage, dial: Dial): Requested | Wrong {
  const url = request.url ?? "";
  const hosts = headerValues(request.rawHeaders, "host");
  if (hosts.length > 1) return { status: 400, text: "The request has several Host headers" };
  if (url.startsWith("/") || url === "*") {
    const [text] = hosts;
    if (text === undefined && dial.isProxy !== true && request.httpVersion === "1.0")
      return { host: undefined, dial, path: url, authority: undefined };
    const authority = parseAuthority(text ?? "");
    if (!authority) return { status: 400, text: "The Host header is not a plain name or address" };
    if (isGateway(authority.host)) return { host: authority.host, dial, path: url, authority: text };
    if (dial.isProxy === true)
      return { status: 400, text: "This is a proxy. Send a request with an absolute URL" };
    if (authority.port !== undefined && authority.port !== dial.port)
      return {
        status: 400,
        text: `The Host header names port ${authority.port}, but the connection is to port ${dial.port}`,
      };
    return { host: authority.host, dial, path: url, authority: text };
  }
  const absolute = /^http:\/\/([^/?#]+)([/?][^#]*)?$/i.exec(url);
  const authority = parseAuthority(absolute?.[1] ?? "");
  if (!authority)
    return { status: 400, text: "The URL of the request is not http:// with a plain name or address" };
  const path = absolute?.[2] ?? "/";
  return {
    host: authority.host,
    dial: { port: authority.port ?? 80 },
    path: path.startsWith("?") ? `/${path}` : path,
    authority: absolute?.[1],
  };
}

export function isGateway(host: Host | undefined): boolean {
  return host !== undefined && "name" in host && host.name === gatewayHost;
}
