/**
 * Refuses requests that a web page could make a browser send, whatever key they carry: a Host that is not this
 * server (DNS rebinding), and the Origin of another site. Pure.
 */
import { isIP } from "node:net";
import { AppError } from "@forkd/contract/wire";

type Address = { readonly name: string; readonly port: string };

const hostPattern = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(\d{1,5}))?$/i;

/** "NAME", "NAME:PORT" or "[ADDRESS]:PORT" */
function parseHost(text: string): Address | undefined {
  const match = hostPattern.exec(text);
  if (!match) return undefined;
  return { name: (match[1] ?? "").replace(/^\[|\]$/g, "").toLowerCase(), port: match[2] ?? "" };
}

export function isLoopback(name: string): boolean {
  return name === "localhost" || name === "::1" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}

type Guarded = {
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly fetchSite: string | undefined;
  /** Address of this side of the connection. */
  readonly localAddress?: string | undefined;
};

type Allowed = {
  /** Names of this server besides loopback: "NAME" or "NAME:PORT". */
  readonly hosts: readonly string[];
  /** Scheme and port that a page of this server itself would have. */
  readonly scheme: "http" | "https";
};

/** Throws `forbidden`. */
export function checkBrowserTraps(request: Guarded, allowed: Allowed): void {
  const { host: text = "", origin, fetchSite, localAddress } = request;
  const host = parseHost(text);
  if (host === undefined || !(isOwn(host, allowed.hosts) || isAddress(host, localAddress)))
    throw new AppError(
      "forbidden",
      `Host "${text.slice(0, 255)}" is refused: it is not a name of this server`,
      {
        remedy: { action: "advice", text: "Start the server with --allow-host NAME to allow it." },
      },
    );
  if (origin === undefined) {
    if (fetchSite === "cross-site" || fetchSite === "same-site")
      throw new AppError("forbidden", `A ${fetchSite} request of a browser is refused`);
    return;
  }
  if (origin.toLowerCase() === `${allowed.scheme}://${text.toLowerCase()}`) return;
  const from = parseHost(origin.replace(/^https?:\/\//i, ""));
  if (/^https?:/i.test(origin) && from !== undefined && isListed(from, allowed.hosts)) return;
  throw new AppError("forbidden", `Origin "${origin.slice(0, 255)}" is refused: it is not this server`, {
    remedy: { action: "advice", text: "Start the server with --allow-host NAME to allow it." },
  });
}

function isOwn(host: Address, hosts: readonly string[]): boolean {
  return isLoopback(host.name) || isListed(host, hosts);
}

/** An address counts only if the connection came in on it: then no name had to be resolved. */
function isAddress({ name }: Address, local = ""): boolean {
  return isIP(name) !== 0 && name === local.replace(/^::ffff:/, "");
}

function isListed({ name, port }: Address, hosts: readonly string[]): boolean {
  return hosts.some((entry) => {
    const wanted = parseHost(entry);
    return wanted?.name === name && (wanted.port === "" || wanted.port === port);
  });
}
