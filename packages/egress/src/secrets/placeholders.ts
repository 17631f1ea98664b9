/**
 * Placeholders in requests. A value replaces its placeholder only in the header of its secret and only on the
 * way to a host of its secret.
 *
 * A placeholder is worthless outside the proxy, so a guest that hides one from these checks gains nothing.
 * Refusing a misplaced one tells the user about a mistake, and the operator about a guest that tries.
 */
import type { MachineSecret } from "../types.ts";
import { authorityOf, isHostOf } from "./hosts.ts";
import { needlesOf, type Needle } from "./scrubber.ts";

const placeholder = /forkd-secret-[0-9a-f]{32}/g;
const basic = /^(basic +)([A-Za-z0-9+/_-]+={0,2}) *$/i;

type Rewritten = {
  readonly headers: string[];
  /** credentials that were made, which must not come back to the guest */
  readonly needles: readonly Needle[];
};

export type Host = { readonly name: string; readonly port: number };

/** Raw headers (name, value, name, value …) as they may be sent to `host` over TLS. */
export function rewriteHeaders(
  rawHeaders: readonly string[],
  host: Host,
  secrets: readonly MachineSecret[],
): Rewritten | { readonly refused: string } {
  const needles: Needle[] = [];
  const headers: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    const value = rawHeaders[at + 1] ?? "";
    const credentials = basic.exec(value);
    const plain = credentials && Buffer.from(credentials[2] ?? "", "base64").toString("latin1");
    const fault = placeholdersIn(name, value, plain ?? "")
      .map((found) => faultOf(found, name, host, secrets))
      .find((text) => text !== undefined);
    if (fault !== undefined) return { refused: fault };
    let sent = withValues(value, secrets);
    if (credentials && plain !== null && plain.search(placeholder) >= 0) {
      const token = Buffer.from(withValues(plain, secrets), "latin1").toString("base64");
      sent = `${credentials[1]}${token}`;
      needles.push({ text: token, placeholder: credentials[2] ?? "" });
    }
    headers.push(name, sent);
  }
  return { headers, needles };
}

/** Why this URL must not be sent, or undefined. Values are never put into URLs: hosts and proxies log those. */
export function faultInUrl(url: string, host: Host, secrets: readonly MachineSecret[]): string | undefined {
  for (const found of placeholdersIn(url, decoded(url))) {
    const fault = faultOf(found, undefined, host, secrets);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

/** Why plain HTTP must not carry these headers, or undefined. Values are sent only over TLS. */
export function faultInPlainHeaders(
  rawHeaders: readonly string[],
  host: string,
  secrets: readonly MachineSecret[],
): string | undefined {
  for (const part of rawHeaders) {
    const credentials = basic.exec(part)?.[2] ?? "";
    for (const found of placeholdersIn(part, Buffer.from(credentials, "base64").toString("latin1"))) {
      const secret = secrets.find((each) => each.placeholder === found);
      if (secret === undefined) return unknownSecret;
      return `The secret "${secret.name}" is not for plain HTTP to "${host}". Values are sent only over HTTPS`;
    }
  }
  return undefined;
}

/** What a response from this host must not contain. */
export function needlesFor(host: Host, secrets: readonly MachineSecret[]): Needle[] {
  return secrets.filter(({ hosts }) => isHostOf(hosts, host.name, host.port)).flatMap(needlesOf);
}

const unknownSecret = "The request has the placeholder of a secret that this sandbox does not have";

/** `header`: undefined for the URL */
function faultOf(
  found: string,
  header: string | undefined,
  host: Host,
  secrets: readonly MachineSecret[],
): string | undefined {
  const secret = secrets.find((each) => each.placeholder === found);
  if (secret === undefined) return unknownSecret;
  if (!isHostOf(secret.hosts, host.name, host.port))
    return `The secret "${secret.name}" is not for the host "${authorityOf(host.name, host.port)}"`;
  if (header === undefined || header.toLowerCase() !== secret.header.toLowerCase())
    return `The secret "${secret.name}" is only for the header "${secret.header}", not for ${header === undefined ? "the URL" : `"${header.slice(0, 64)}"`}`;
  return undefined;
}

function placeholdersIn(...texts: readonly string[]): string[] {
  return texts.flatMap((text) => text.match(placeholder) ?? []);
}

/** faultOf() has checked every placeholder of the text. */
function withValues(text: string, secrets: readonly MachineSecret[]): string {
  return text.replaceAll(
    placeholder,
    (found) => secrets.find((secret) => secret.placeholder === found)?.value ?? found,
  );
}

function decoded(url: string): string {
  try {
    return decodeURIComponent(url);
  } catch {
    // Not valid percent-encoding: the text itself is searched.
    return "";
  }
}
