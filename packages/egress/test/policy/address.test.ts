import assert from "node:assert/strict";
import net from "node:net";
import test from "node:test";
import { canonicalAddress, formatAddress, parseAddress } from "../../src/policy/address.ts";
import { addressSet, hostAddresses, isSynthetic, kindOfText } from "../../src/policy/address-kind.ts";
import { normalName, parseAuthority, parseHost } from "../../src/policy/host.ts";
import { random } from "../support/random.ts";

const none = addressSet([]);

const kinds: readonly (readonly [address: string, kind: string])[] = [
  ["8.8.8.8", "public"],
  ["192.0.2.1", "public"],
  ["203.0.113.9", "public"],
  ["0.0.0.0", "unspecified"],
  ["0.1.2.3", "unspecified"],
  ["10.255.255.255", "private"],
  ["11.0.0.0", "public"],
  ["100.63.255.255", "public"],
  ["100.64.0.0", "shared"],
  ["100.100.100.200", "metadata"],
  ["100.127.255.255", "shared"],
  ["100.128.0.0", "public"],
  ["127.0.0.1", "loopback"],
  ["127.255.255.254", "loopback"],
  ["168.63.129.16", "metadata"],
  ["169.254.169.254", "metadata"],
  ["169.254.0.1", "link-local"],
  ["172.15.255.255", "public"],
  ["172.16.0.0", "private"],
  ["172.31.255.255", "private"],
  ["172.32.0.0", "public"],
  ["192.0.0.192", "metadata"],
  ["192.0.0.8", "reserved"],
  ["192.168.1.1", "private"],
  ["198.17.255.255", "public"],
  ["198.18.0.0", "synthetic"],
  ["198.19.255.255", "synthetic"],
  ["198.20.0.0", "public"],
  ["224.0.0.1", "multicast"],
  ["239.255.255.250", "multicast"],
  ["240.0.0.1", "reserved"],
  ["255.255.255.255", "broadcast"],
  ["::", "unspecified"],
  ["::1", "loopback"],
  ["::ffff:127.0.0.1", "loopback"],
  ["::ffff:7f00:1", "loopback"],
  ["0:0:0:0:0:ffff:a9fe:a9fe", "metadata"],
  ["::ffff:8.8.8.8", "public"],
  ["::127.0.0.1", "reserved"],
  ["::8.8.8.8", "reserved"],
  ["64:ff9b::8.8.8.8", "public"],
  ["64:ff9b::10.0.0.1", "private"],
  ["64:ff9b::169.254.169.254", "metadata"],
  ["64:ff9b:1::8.8.8.8", "private"],
  ["2002:0808:0808::1", "public"],
  ["2002:7f00:0001::1", "loopback"],
  ["2002:c0a8:0101::1", "private"],
  ["2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"],
  ["2606:4700::1111", "public"],
  ["2001:db8::1", "public"],
  ["fc00::1", "private"],
  ["fd00:ec2::254", "metadata"],
  ["fd12:3456::1", "private"],
  ["fe80::1", "link-local"],
  ["fec0::1", "private"],
  ["ff02::1", "multicast"],
  ["100::1", "reserved"],
  ["4000::1", "reserved"],
];

test("every special range has its kind, also inside IPv6", () => {
  for (const [address, kind] of kinds) assert.equal(kindOfText(address, none), kind, address);
});

test("the host's own addresses are not public, however they are written", () => {
  const own = addressSet(["203.0.113.9", "2606:4700::9", "fe80::1%eth0"]);
  for (const text of [
    "203.0.113.9",
    "::ffff:203.0.113.9",
    "64:ff9b::203.0.113.9",
    "2002:cb00:7109::",
    "2606:4700:0::9",
  ])
    assert.equal(kindOfText(text, own), "host", text);
  assert.equal(kindOfText("203.0.113.10", own), "public");
  assert.ok(hostAddresses().size > 0);
});

test("other writings of an address are not addresses and not names", () => {
  for (const text of [
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "127.1",
    "127.0.0.1.",
    "1.2.3",
    "0.0.0.0x1",
    "1.1.1.08",
    "256.1.1.1",
    "12345678901234567890",
  ]) {
    assert.equal(canonicalAddress(text), undefined, text);
    assert.equal(parseHost(text), undefined, text);
  }
});

test("parseHost() normalises names and refuses everything else", () => {
  assert.deepEqual(parseHost("Example.COM."), { name: "example.com" });
  assert.deepEqual(parseHost("[::ffff:10.0.0.1]"), { address: "10.0.0.1" });
  assert.deepEqual(parseHost("[2001:DB8:0:0::1]"), { address: "2001:db8::1" });
  for (const text of [
    "",
    ".",
    "..",
    "a b",
    "a@b",
    "user:pw@example.com",
    "exämple.com",
    "a/b",
    "[10.0.0.1]",
    "[::1",
    "::1",
    "a..b",
    "a.b..",
    "%65xample.com",
    "a\tb",
    "[fe80::1%eth0]",
    "x".repeat(300),
  ])
    assert.equal(parseHost(text), undefined, text);
  assert.equal(normalName("bücher.example"), "xn--bcher-kva.example");
  assert.equal(normalName("１２７.0.0.1"), undefined);
});

test("parseAuthority() takes a port from 1 to 65535", () => {
  assert.deepEqual(parseAuthority("a.example:80"), { host: { name: "a.example" }, port: 80 });
  assert.deepEqual(parseAuthority("[::1]:80"), { host: { address: "::1" }, port: 80 });
  assert.deepEqual(parseAuthority("a.example"), { host: { name: "a.example" }, port: undefined });
  for (const text of [
    "a.example:",
    "a.example:0",
    "a.example:65536",
    "a.example:80:80",
    "a.example:+80",
    "::1:80",
    "a.example: 80",
  ])
    assert.equal(parseAuthority(text), undefined, text);
});

test("parseAddress() and formatAddress() agree with the system for random addresses", () => {
  const { below } = random();
  for (let round = 0; round < 2000; round++) {
    const words = Array.from({ length: 8 }, () => (below(3) === 0 ? 0 : below(65536)));
    const text = words.map((word) => word.toString(16)).join(":");
    const address = parseAddress(text);
    assert.ok(address);
    const back = formatAddress(address);
    assert.ok(net.isIP(back), back);
    assert.deepEqual(parseAddress(back), address, text);
    const v4 = Array.from({ length: 4 }, () => below(256)).join(".");
    assert.equal(canonicalAddress(v4), v4);
    assert.equal(canonicalAddress(`::ffff:${v4}`), v4);
  }
  assert.ok(isSynthetic("198.18.0.1") && !isSynthetic("198.20.0.1") && !isSynthetic("x"));
});
