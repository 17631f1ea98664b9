/**
 * Host names from rules and from guests, in one form: lower case, ASCII, without a trailing dot. A name that could
 * also be read as an address by some resolver (octal, hexadecimal, one number) is neither.
 */
import { domainToASCII } from "node:url";
import { canonicalAddress } from "./address.ts";

const maxNameLength = 253;
const labelPattern = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** The normal form of a name; undefined if it is not one. */
export function normalName(text: string): string | undefined {
  if (text.length > 2 * maxNameLength) return undefined;
  let name = text.toLowerCase();
  // Not for ASCII: it would turn numbers into addresses and decode percent signs.
  if (!/^[\x20-\x7e]*$/.test(name)) name = domainToASCII(name);
  if (name.endsWith(".")) name = name.slice(0, -1);
  if (name === "" || name.length > maxNameLength) return undefined;
  const labels = name.split(".");
  if (!labels.every((label) => labelPattern.test(label))) return undefined;
  return isNumeric(labels.at(-1) ?? "") ? undefined : name;
}

export function isNumeric(label: string): boolean {
  return /^(?:\d+|0x[0-9a-f]*)$/.test(label);
}

export type Host = { readonly name: string } | { readonly address: string };
export type Authority = { readonly host: Host; readonly port: number | undefined };

/** The host of a Host header, a request line or a TLS hello. Guests send it: ASCII only, nothing is repaired. */
export function parseHost(text: string): Host | undefined {
  if (!/^[\x21-\x7e]{1,255}$/.test(text)) return undefined;
  const bracketed = /^\[([0-9a-fA-F:.]+)\]$/.exec(text)?.[1];
  if (bracketed !== undefined) {
    const address = bracketed.includes(":") ? canonicalAddress(bracketed) : undefined;
    return address === undefined ? undefined : { address };
  }
  if (text.includes(":")) return undefined;
  const address = canonicalAddress(text);
  if (address !== undefined) return { address };
  const name = normalName(text);
  return name === undefined ? undefined : { name };
}

/** `HOST` or `HOST:PORT`. */
export function parseAuthority(text: string): Authority | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]]*)(?::(\d{1,5}))?$/.exec(text);
  const host = parseHost(match?.[1] ?? "");
  if (!match || !host) return undefined;
  if (match[2] === undefined) return { host, port: undefined };
  const port = Number(match[2]);
  return port >= 1 && port <= 65535 ? { host, port } : undefined;
}
