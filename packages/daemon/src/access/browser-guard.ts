/**
 * Refuses, on TCP, requests that a web page could make a browser send, whatever token they carry: a Host that
 * is not this daemon (DNS rebinding), the Origin of another site, and a body in a form that pages may send
 * without a preflight request.
 */
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { AppError } from "@forkd/contract";
import { isLoopback } from "../settings/exposure.ts";
import { isPortName } from "./port-name.ts";

type HostName = { readonly name: string; readonly port: string };

const hostPattern = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(\d{1,5}))?$/i;

export function parseHost(text: string): HostName | undefined {
  const match = hostPattern.exec(text);
  if (!match) return undefined;
  return { name: (match[1] ?? "").replace(/^\[|\]$/g, "").toLowerCase(), port: match[2] ?? "" };
}

/** "NAME", "NAME:PORT" or "*.SUFFIX" */
export type AllowedHosts = readonly string[];

export function isAllowed(host: HostName, allowed: AllowedHosts): boolean {
  return allowed.some((entry) => {
    if (entry.startsWith("*.")) return host.name.endsWith(entry.slice(1).toLowerCase());
    const wanted = parseHost(entry);
    return wanted?.name === host.name && (wanted.port === "" || wanted.port === host.port);
  });
}

/** Throws `forbidden`, or `invalid_request` for the form of a body. */
export function checkBrowserTraps(incoming: IncomingMessage, allowed: AllowedHosts): void {
  const { host: hostText = "", origin } = incoming.headers;
  const host = parseHost(hostText);
  if (host === undefined || !isOwn(host, incoming, allowed)) {
    throw new AppError(
      "forbidden",
      `Host "${hostText.slice(0, 255)}" is refused: it is neither this machine nor in the setting allowed_hosts`,
    );
  }
  const site = incoming.headers["sec-fetch-site"];
  if (origin === undefined) {
    if (site === "cross-site" || site === "same-site")
      throw new AppError("forbidden", `A ${site} request of a browser is refused`);
  } else if (!isOwnOrigin(origin, hostText, incoming) && !isAllowedOrigin(origin, allowed)) {
    throw new AppError(
      "forbidden",
      `Origin "${origin.slice(0, 255)}" is refused: it is neither the daemon's own nor in the setting allowed_hosts`,
    );
  }
  if ((origin !== undefined || site !== undefined) && incoming.method === "POST" && hasBody(incoming)) {
    const type = (incoming.headers["content-type"] ?? "").replace(/;.*/s, "").trim().toLowerCase();
    if (type !== "application/json") {
      throw new AppError(
        "invalid_request",
        `Invalid request: from a browser the Content-Type must be application/json, not "${type.slice(0, 100)}"`,
      );
    }
  }
}

/** An address counts only if the connection came in on it: then no name had to be resolved. */
function isOwn(host: HostName, incoming: IncomingMessage, allowed: AllowedHosts): boolean {
  if (isPortName(host.name)) return false;
  if (isLoopback(host.name) || isAllowed(host, allowed)) return true;
  const local = (incoming.socket.localAddress ?? "").replace(/^::ffff:/, "");
  return isIP(host.name) !== 0 && host.name === local;
}

function isOwnOrigin(origin: string, host: string, incoming: IncomingMessage): boolean {
  const scheme = "encrypted" in incoming.socket ? "https" : "http";
  return origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
}

function isAllowedOrigin(origin: string, allowed: AllowedHosts): boolean {
  const host = parseHost(origin.replace(/^https?:\/\//i, ""));
  // A page of a guest is not the operator's, even if allowed_hosts has "*.localhost".
  return /^https?:/i.test(origin) && host !== undefined && !isPortName(host.name) && isAllowed(host, allowed);
}

function hasBody(incoming: IncomingMessage): boolean {
  const { "content-length": length, "transfer-encoding": encoding } = incoming.headers;
  return encoding !== undefined || (length !== undefined && length !== "0");
}
