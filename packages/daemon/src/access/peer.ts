/** Where a request comes from. */
import type { IncomingMessage } from "node:http";

/** Empty on a unix socket. */
export function addressOf(incoming: IncomingMessage): string {
  return plainAddress(incoming.socket.remoteAddress);
}

/** An IPv4 address that came in on an IPv6 socket is written as IPv4. Pure. */
export function plainAddress(address = ""): string {
  return address.replace(/^::ffff:(?=\d+\.)/, "");
}

/** What one customer usually has: an IPv4 address, or 64 bits of an IPv6 address. Pure. */
export function networkOf(address: string): string {
  if (!address.includes(":")) return address;
  const [head = "", tail] = address.replace(/%.*/, "").split("::");
  const before = head === "" ? [] : head.split(":");
  if (tail === undefined) return before.slice(0, 4).join(":");
  const after = tail === "" ? [] : tail.split(":");
  const zeros = Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => "0");
  return [...before, ...zeros, ...after].slice(0, 4).join(":");
}
