/**
 * IP addresses as numbers. An IPv4 address that is mapped into IPv6 (::ffff:a.b.c.d) is the IPv4 address, so that
 * a rule cannot be avoided by writing an address in another way.
 */
import net from "node:net";

export type Address =
  { readonly family: 4; readonly value: number } | { readonly family: 6; readonly value: bigint };

/** Undefined unless it is the usual text of an address: no octal or hexadecimal parts, no zone. */
export function parseAddress(text: string): Address | undefined {
  if (net.isIPv4(text)) return { family: 4, value: ipv4(text) };
  if (!net.isIPv6(text) || text.includes("%")) return undefined;
  const value = ipv6(text);
  if (value >> 32n === 0xffffn) return { family: 4, value: Number(value & 0xffffffffn) };
  return { family: 6, value };
}

/** The canonical text. */
export function formatAddress(address: Address): string {
  if (address.family === 4) return [24, 16, 8, 0].map((shift) => (address.value >>> shift) & 0xff).join(".");
  // The URL parser writes IPv6 addresses in the form of RFC 5952.
  const words = Array.from({ length: 8 }, (_, index) =>
    ((address.value >> BigInt(112 - 16 * index)) & 0xffffn).toString(16),
  );
  return new URL(`http://[${words.join(":")}]/`).hostname.slice(1, -1);
}

/** The canonical text of an address, or undefined. */
export function canonicalAddress(text: string): string | undefined {
  const address = parseAddress(text);
  return address && formatAddress(address);
}

/** The first address of the range. */
export function maskAddress(address: Address, prefix: number): Address {
  return address.family === 4
    ? { family: 4, value: mask4(address.value, prefix) }
    : { family: 6, value: mask6(address.value, prefix) };
}

export function mask4(value: number, prefix: number): number {
  return prefix === 0 ? 0 : (value & (0xffffffff << (32 - prefix))) >>> 0;
}

export function mask6(value: bigint, prefix: number): bigint {
  const rest = BigInt(128 - prefix);
  return (value >> rest) << rest;
}

function ipv4(text: string): number {
  return text.split(".").reduce((value, part) => value * 256 + Number(part), 0);
}

function ipv6(text: string): bigint {
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
  if (dotted?.[1] !== undefined && dotted[2] !== undefined) {
    const value = ipv4(dotted[2]);
    return ipv6(`${dotted[1]}${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`);
  }
  const [head = "", tail] = text.split("::");
  const before = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const words = [...before, ...Array.from({ length: 8 - before.length - after.length }, () => "0"), ...after];
  return words.reduce((value, word) => (value << 16n) | BigInt(Number.parseInt(word, 16)), 0n);
}
