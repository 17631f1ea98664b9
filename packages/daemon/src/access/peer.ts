/** Where a request comes from. */
import type { IncomingMessage } from "node:http";

/** Empty on a unix socket. */
export function addressOf(incoming: IncomingMessage): string {
  return plainAddress(incoming.socket.remoteAddress);
}

/** Writes an IPv4 address of an IPv6 socket as IPv4. Pure. */
export function plainAddress(address = ""): string {
  return address.replace(/^::ffff:(?=\d+\.)/, "");
}

/** The addresses that one customer usually has: one IPv4 address, or a /64 network of IPv6. Pure. */
export function networkOf(address: string): string {
  if (!address.includes(":")) return address;
  const [head = "", tail] = address.replace(/%.*/, "").split("::");
  const before = head === "" ? [] : head.split(":");
  if (tail === undefined) return before.slice(0, 4).join(":");
  const after = tail === "" ? [] : tail.split(":");
  const zeros = Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => "0");
  return [...before, ...zeros, ...after].slice(0, 4).join(":");
}
