/**
 * Headers between a client and a guest. The guest is hostile and must not learn the caller's rights; its
 * answer must not change what a browser believes about the daemon. Pure.
 */
import { portToken, proxyPath } from "@forkd/contract";
import type { PortTarget } from "../access/port-name.ts";
import { withoutCookie } from "./port-token.ts";

/** Names and values in turn, as Node's `rawHeaders` */
type RawHeaders = readonly string[];

/** How a request came: by the host name of the port, or by a path of the API. */
export type PortAccess = "host" | "path";

const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "transfer-encoding",
  "upgrade",
]);

/** The daemon says these itself. */
const forwarded = new Set([
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-prefix",
  "x-forwarded-proto",
  "x-real-ip",
]);

/** On a path of the API they would concern the daemon's own address and every other port of it. */
const ofOrigin = new Set([
  "set-cookie",
  "clear-site-data",
  "strict-transport-security",
  "service-worker-allowed",
  "alt-svc",
  "nel",
  "report-to",
  "reporting-endpoints",
]);

export type RequestFacts = {
  readonly access: PortAccess;
  readonly target: PortTarget;
  /** of the client; empty on a unix socket */
  readonly peer: string;
  readonly isHttps: boolean;
  /** the header Authorization is a right to call the daemon */
  readonly hasOwnSecret: boolean;
  /** the same of the header X-API-KEY, in which clients of E2B have it */
  readonly hasOwnKey?: boolean;
  /** the protocol that the client wants to change to */
  readonly upgrade?: string | undefined;
};

/** The headers of the request to the guest. */
export function toGuest(raw: RawHeaders, facts: RequestFacts): string[] {
  const { access, target } = facts;
  const dropped = new Set([...hopByHop, ...forwarded, ...listedIn(raw)]);
  if (access === "path") for (const name of ["host", "authorization", "cookie"]) dropped.add(name);
  if (facts.hasOwnSecret) dropped.add("authorization");
  if (facts.hasOwnKey) dropped.add("x-api-key");
  const result: string[] = [];
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (dropped.has(key) || key.startsWith("x-forkd-") || key === portToken.header || key.startsWith("e2b-"))
      continue;
    const kept = key === "cookie" ? withoutCookie(value) : value;
    if (kept !== undefined) result.push(name, kept);
  }
  const [, host = ""] = pairsOf(raw).find(([name]) => name.toLowerCase() === "host") ?? [];
  if (access === "path") {
    result.push("Host", `localhost:${target.port}`);
    result.push("X-Forwarded-Prefix", proxyPath(target.id, target.port).slice(0, -1));
  }
  if (facts.peer !== "") result.push("X-Forwarded-For", facts.peer);
  result.push("X-Forwarded-Host", host, "X-Forwarded-Proto", facts.isHttps ? "https" : "http");
  const encoding = pairsOf(raw).some(([name]) => name.toLowerCase() === "transfer-encoding");
  if (encoding) result.push("Transfer-Encoding", "chunked");
  if (facts.upgrade !== undefined) result.push("Connection", "Upgrade", "Upgrade", facts.upgrade);
  return result;
}

/** The headers of the answer to the client. */
export function toClient(
  raw: RawHeaders,
  { access, target }: { access: PortAccess; target: PortTarget },
): string[] {
  const dropped = new Set([...hopByHop, ...listedIn(raw)]);
  if (access === "path") for (const name of ofOrigin) dropped.add(name);
  const result: string[] = [];
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (dropped.has(key)) continue;
    const kept = access === "path" ? onPath(key, value, target) : onHost(key, value);
    if (kept !== undefined) result.push(name, kept);
  }
  // A page of a guest that a browser shows under the address of the API gets another origin than the API.
  if (access === "path") result.push("Content-Security-Policy", "sandbox");
  return result;
}

/** A redirect within the guest stays below the path. */
function onPath(key: string, value: string, { id, port }: PortTarget): string {
  return key === "location" && /^\/(?![/\\])/.test(value) ? proxyPath(id, port) + value.slice(1) : value;
}

/** Cookies of a guest belong to its own host name, and the daemon's cookie is not one of them. */
function onHost(key: string, value: string): string | undefined {
  if (key !== "set-cookie") return value;
  if (new RegExp(`^\\s*${portToken.cookie}\\s*=`, "i").test(value)) return undefined;
  return value.replaceAll(/;\s*domain\s*=[^;]*/gi, "");
}

/** Without them the guest would see another request than the daemon. */
const framing = new Set(["content-length", "host"]);

/** Names that the header Connection lists. */
function listedIn(raw: RawHeaders): string[] {
  return pairsOf(raw)
    .filter(([name]) => name.toLowerCase() === "connection")
    .flatMap(([, value]) => value.split(",").map((each) => each.trim().toLowerCase()))
    .filter((name) => !framing.has(name));
}

function pairsOf(raw: RawHeaders): [name: string, value: string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) pairs.push([raw[at] ?? "", raw[at + 1] ?? ""]);
  return pairs;
}
