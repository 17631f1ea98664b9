/**
 * Which addresses are public. A name or `*` leads only to public addresses; everything else needs a rule that
 * names the address or its range. Documentation ranges count as public: networks with a transparent proxy
 * answer with such addresses.
 */
import { networkInterfaces } from "node:os";
import { mask4, mask6, parseAddress, type Address } from "./address.ts";

export type AddressKind =
  | "public"
  | "private"
  | "loopback"
  | "link-local"
  | "metadata"
  | "shared"
  | "multicast"
  | "broadcast"
  | "unspecified"
  | "synthetic"
  | "reserved"
  | "host";

type Range<V> = readonly [first: V, prefix: number, kind: AddressKind];

/** The first match counts. */
const ranges4: readonly Range<number>[] = (
  [
    ["169.254.169.254", 32, "metadata"],
    ["168.63.129.16", 32, "metadata"], // Azure
    ["100.100.100.200", 32, "metadata"], // Alibaba
    ["192.0.0.192", 32, "metadata"], // Oracle
    ["255.255.255.255", 32, "broadcast"],
    ["0.0.0.0", 8, "unspecified"],
    ["10.0.0.0", 8, "private"],
    ["100.64.0.0", 10, "shared"],
    ["127.0.0.0", 8, "loopback"],
    ["169.254.0.0", 16, "link-local"],
    ["172.16.0.0", 12, "private"],
    ["192.0.0.0", 24, "reserved"],
    ["192.168.0.0", 16, "private"],
    ["198.18.0.0", 15, "synthetic"],
    ["224.0.0.0", 4, "multicast"],
    ["240.0.0.0", 4, "reserved"],
  ] as const
).map(([text, prefix, kind]) => [parsed(text).value as number, prefix, kind]);

const ranges6: readonly Range<bigint>[] = (
  [
    ["fd00:ec2::254", 128, "metadata"],
    ["::1", 128, "loopback"],
    ["::", 128, "unspecified"],
    ["64:ff9b:1::", 48, "private"],
    ["2001::", 32, "reserved"], // Teredo: an IPv4 address in disguise
    ["fc00::", 7, "private"],
    ["fe80::", 10, "link-local"],
    ["fec0::", 10, "private"],
    ["ff00::", 8, "multicast"],
  ] as const
).map(([text, prefix, kind]) => [parsed(text).value as bigint, prefix, kind]);

const nat64 = parsed("64:ff9b::").value as bigint;
const sixToFour = 0x2002n;

export function kindOf(address: Address, own: ReadonlySet<string>): AddressKind {
  if (address.family === 4) return kindOf4(address.value, own);
  const { value } = address;
  const special = ranges6.find(([first, prefix]) => mask6(value, prefix) === first);
  if (special) return special[2];
  // These carry an IPv4 address, which is what the packet reaches in the end.
  if (mask6(value, 96) === nat64) return kindOf4(Number(value & 0xffffffffn), own);
  if (value >> 112n === sixToFour) {
    const inner = kindOf4(Number((value >> 80n) & 0xffffffffn), own);
    if (inner !== "public") return inner;
  }
  if (value >> 125n !== 1n) return "reserved"; // global unicast is 2000::/3
  return own.has(keyOf(address)) ? "host" : "public";
}

function kindOf4(value: number, own: ReadonlySet<string>): AddressKind {
  const special = ranges4.find(([first, prefix]) => mask4(value, prefix) === first);
  if (special) return special[2];
  return own.has(keyOf({ family: 4, value })) ? "host" : "public";
}

/** One text for each address, cheaper than the canonical one. */
function keyOf(address: Address): string {
  return `${address.family}/${address.value}`;
}

export function isSynthetic(text: string): boolean {
  const address = parseAddress(text);
  return address?.family === 4 && mask4(address.value, 15) === (0xc6120000 | 0) >>> 0;
}

const refreshMs = 5000;
let known: { addresses: ReadonlySet<string>; atMs: number } | undefined;

/** The addresses of this host, at most some seconds old: interfaces come and go. */
export function hostAddresses(): ReadonlySet<string> {
  const now = performance.now();
  if (known && now - known.atMs < refreshMs) return known.addresses;
  const texts = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  known = { addresses: addressSet(texts.map(({ address }) => address)), atMs: now };
  return known.addresses;
}

/** For kindOf(). */
export function addressSet(texts: readonly string[]): ReadonlySet<string> {
  const addresses = texts.map((text) => parseAddress(text.replace(/%.*$/, "")));
  return new Set(addresses.flatMap((address) => (address ? [keyOf(address)] : [])));
}

/** The kind of an address that is given as text; undefined if it is not an address. */
export function kindOfText(
  text: string,
  own: ReadonlySet<string> = hostAddresses(),
): AddressKind | undefined {
  const address = parseAddress(text);
  return address && kindOf(address, own);
}

function parsed(text: string): Address {
  const address = parseAddress(text);
  if (!address) throw new Error(`"${text}" is not an address`);
  return address;
}
