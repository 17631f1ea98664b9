/** Headers between a guest and a host outside: which of them cross, and in which form. Pure. */
import type { OutgoingHttpHeaders } from "node:http";
import { parseAuthority } from "../policy/host.ts";
import type { Host } from "../secrets/placeholders.ts";

/** They describe one connection, not the message. */
const hopByHop = new Set([
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** Set again for the host outside. */
const ofRequest = new Set(["accept-encoding", "expect", "host"]);
/** Offers another way to the host that passes this proxy by, and that a guest cannot use. */
const ofResponse = new Set(["alt-svc"]);

export function* pairsOf(rawHeaders: readonly string[]): Generator<[name: string, value: string]> {
  for (let at = 0; at + 1 < rawHeaders.length; at += 2)
    yield [rawHeaders[at] ?? "", rawHeaders[at + 1] ?? ""];
}

/** Values of one header, in order. */
export function valuesOf(rawHeaders: readonly string[], wanted: string): string[] {
  return [...pairsOf(rawHeaders)].flatMap(([name, value]) => (name.toLowerCase() === wanted ? [value] : []));
}

/** The headers of a guest's request that the host outside may see. */
export function requestHeaders(rawHeaders: readonly string[]): string[] {
  return crossing(rawHeaders, ofRequest);
}

export function responseHeaders(rawHeaders: readonly string[]): string[] {
  return crossing(rawHeaders, ofResponse);
}

function crossing(rawHeaders: readonly string[], dropped: ReadonlySet<string>): string[] {
  const named = valuesOf(rawHeaders, "connection").flatMap((value) => value.toLowerCase().split(/[\s,]+/));
  const ofConnection = new Set(named);
  return [...pairsOf(rawHeaders)].flatMap(([name, value]) => {
    const key = name.toLowerCase();
    const stays = key.startsWith(":") || hopByHop.has(key) || dropped.has(key) || ofConnection.has(key);
    return stays ? [] : [name, value];
  });
}

/** In the form that Node sends. HTTP/2 may split a cookie, HTTP/1 must not. */
export function grouped(rawHeaders: readonly string[]): OutgoingHttpHeaders {
  const groups = new Map<string, { name: string; values: string[] }>();
  for (const [name, value] of pairsOf(rawHeaders)) {
    const group = groups.get(name.toLowerCase());
    if (group) group.values.push(value);
    else groups.set(name.toLowerCase(), { name, values: [value] });
  }
  const headers: OutgoingHttpHeaders = Object.create(null) as OutgoingHttpHeaders;
  for (const [key, { name, values }] of groups)
    headers[name] = key === "cookie" ? values.join("; ") : values.length === 1 ? values[0] : values;
  return headers;
}

/** Whether a request is for the host of its connection: every name it gives must be that host. */
export function isForHost(rawHeaders: readonly string[], host: Host): boolean {
  const names = [...valuesOf(rawHeaders, ":authority"), ...valuesOf(rawHeaders, "host")];
  return (
    names.length > 0 &&
    names.every((text) => {
      const authority = parseAuthority(text);
      if (authority === undefined || !("name" in authority.host)) return false;
      return authority.host.name === host.name && (authority.port ?? host.port) === host.port;
    })
  );
}

/** About as many bytes as they take on the wire of HTTP/1. */
export function sizeOf(rawHeaders: readonly string[]): number {
  return rawHeaders.reduce((size, part) => size + part.length + 2, 2);
}
