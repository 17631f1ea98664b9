import assert from "node:assert/strict";
import test from "node:test";
import { addressSet, kindOfText } from "../../src/policy/address-kind.ts";
import { mask4, parseAddress } from "../../src/policy/address.ts";
import { Policy } from "../../src/policy/policy.ts";
import { parseRules } from "../../src/policy/presets.ts";
import type { Destination, NetworkMode, PolicyText } from "../../src/types.ts";
import { decideBenchmark } from "../support/decide-benchmark.ts";
import { random } from "../support/random.ts";

const own = addressSet(["203.0.113.9"]);
const compile = (mode: NetworkMode, rules: string[], ceilings: PolicyText[] = []): Policy =>
  Policy.compile({ mode, rules, ceilings }, { ownAddresses: () => own });
const tcp = (host: { name?: string; address?: string }, port = 443): Destination => ({
  protocol: "tcp",
  port,
  ...host,
});

test("without a rule the mode decides", () => {
  const name = tcp({ name: "example.com" });
  assert.equal(compile("none", ["allow *"]).decide(name).allowed, false);
  assert.equal(compile("filtered", []).decide(name).allowed, false);
  assert.deepEqual(compile("open", []).decide(name), { allowed: true, by: "default" });
  assert.equal(compile("open", []).decide(tcp({ address: "10.0.0.1" })).allowed, false);
  assert.equal(compile("open", []).decide({ ...name, protocol: "udp" }).allowed, false);
  assert.equal(compile("open", []).decide(tcp({})).allowed, false);
  assert.equal(compile("open", []).decide(tcp({ address: "0x7f000001" })).allowed, false);
});

test("the first rule that matches decides", () => {
  const policy = compile("filtered", [
    "deny secret.example.com",
    "allow *.example.com:443",
    "deny *.example.com",
    "allow *",
  ]);
  assert.equal(policy.decide(tcp({ name: "secret.example.com" })).allowed, false);
  assert.equal(policy.decide(tcp({ name: "a.b.example.com" })).allowed, true);
  assert.equal(policy.decide(tcp({ name: "a.example.com" }, 80)).allowed, false);
  assert.equal(policy.decide(tcp({ name: "example.com" }, 80)).allowed, true);
  assert.equal(policy.decide(tcp({ name: "notexample.com" }, 80)).allowed, true);
});

test("a wildcard matches names at any depth below it, and nothing else", () => {
  const policy = compile("filtered", ["allow *.example.com"]);
  for (const name of ["a.example.com", "a.b.c.example.com"])
    assert.equal(policy.decide(tcp({ name })).allowed, true, name);
  for (const name of ["example.com", "badexample.com", "example.com.evil.org", "com"])
    assert.equal(policy.decide(tcp({ name })).allowed, false, name);
});

test("a denial names the rule to add", () => {
  const policy = compile("filtered", ["allow db.example", "deny evil.example"]);
  assert.deepEqual(policy.decide(tcp({ name: "example.com" }, 8443)), {
    allowed: false,
    reason: "no rule allows it",
    suggestion: "allow example.com:8443",
  });
  assert.deepEqual(policy.decide(tcp({ name: "db.example", address: "10.0.0.5" }, 5432)), {
    allowed: false,
    reason: "the address is not public (private)",
    suggestion: "allow 10.0.0.5:5432",
  });
  const denied = policy.decide(tcp({ name: "evil.example" }));
  assert.ok(!denied.allowed);
  assert.equal(denied.rule, "deny evil.example");
  const v6 = policy.decide({ protocol: "udp", port: 53, address: "fd00::1" });
  assert.ok(!v6.allowed);
  assert.equal(v6.suggestion, "allow udp [fd00::1]:53");
});

test("a name leads to a private address only if a rule names the address", () => {
  const name = "db.example";
  for (const address of [
    "10.0.0.5",
    "127.0.0.1",
    "169.254.169.254",
    "203.0.113.9",
    "::ffff:10.0.0.5",
    "fd00::1",
  ]) {
    assert.equal(
      compile("filtered", [`allow ${name}`]).decide(tcp({ name, address })).allowed,
      false,
      address,
    );
    assert.equal(compile("filtered", ["allow *"]).decide(tcp({ name, address })).allowed, false, address);
    assert.equal(compile("open", []).decide(tcp({ name, address })).allowed, false, address);
    const rules = [`allow ${name}`, `allow ${address.includes(":") ? `[${address}]` : address}:443`];
    assert.equal(compile("filtered", rules).decide(tcp({ name, address })).allowed, true, address);
    assert.equal(compile("filtered", rules).decide(tcp({ name, address }, 80)).allowed, false, address);
    assert.equal(compile("open", rules).decide(tcp({ address })).allowed, true, address);
  }
});

test("a synthetic address is never a destination", () => {
  const policy = compile("open", ["allow 198.18.0.0/15"]);
  assert.equal(policy.decide(tcp({ address: "198.18.0.1" })).allowed, false);
});

test("deny * is for private addresses, too", () => {
  const policy = compile("filtered", ["deny *:25", "allow 10.0.0.0/8"]);
  assert.equal(policy.decide(tcp({ address: "10.0.0.1" }, 25)).allowed, false);
  assert.equal(policy.decide(tcp({ address: "10.0.0.1" }, 80)).allowed, true);
});

test("deny rules for ranges hold for the addresses of permitted names", () => {
  const policy = compile("open", ["deny 198.51.100.0/24"]);
  assert.equal(policy.decide(tcp({ name: "a.example" })).allowed, true);
  assert.equal(policy.decide(tcp({ name: "a.example", address: "198.51.100.7" })).allowed, false);
});

test("every ceiling must allow it, too", () => {
  const policy = compile("open", ["allow 10.0.0.0/8"], [{ mode: "open", rules: ["deny *.corp.example"] }]);
  assert.equal(policy.decide(tcp({ name: "example.com" })).allowed, true);
  const denied = policy.decide(tcp({ name: "a.corp.example" }));
  assert.ok(!denied.allowed);
  assert.match(denied.reason, /policy of the host or the key/);
  assert.equal(policy.decide(tcp({ address: "10.0.0.1" })).allowed, false);
});

test("mayAllowName() is false for ports that no name rule has", () => {
  const policy = compile("filtered", ["allow a.example:443", "allow 10.0.0.0/8:22", "deny b.example:99"]);
  assert.deepEqual(
    [443, 22, 99].map((port) => policy.mayAllowName(port)),
    [true, false, false],
  );
  assert.equal(compile("open", []).mayAllowName(5), true);
  assert.equal(compile("none", ["allow *"]).mayAllowName(5), false);
});

test("a rule without a protocol allows TCP and denies both", () => {
  const allows = compile("filtered", ["allow a.example:53"]);
  assert.equal(allows.decide({ protocol: "udp", name: "a.example", port: 53 }).allowed, false);
  const denies = compile("filtered", ["deny a.example", "allow udp a.example:53"]);
  assert.equal(denies.decide({ protocol: "udp", name: "a.example", port: 53 }).allowed, false);
  const udp = compile("filtered", [
    "allow udp a.example:53,123",
    "allow udp *.b.example:53",
    "allow udp 192.0.2.1:9",
  ]);
  assert.deepEqual(udp.udpTargets(), [
    { name: "a.example", port: 53 },
    { name: "a.example", port: 123 },
    { address: "192.0.2.1", port: 9 },
  ]);
  assert.deepEqual(udp.udpPorts("x.b.example"), [53]);
});

/** The same by reading every rule. */
function slowly(mode: NetworkMode, texts: string[], destination: Destination): boolean {
  const rules = parseRules(texts).map(({ rule }) => rule);
  const { name, address, port, protocol } = destination;
  const kind = address === undefined ? "public" : kindOfText(address, own);
  if (mode === "none" || kind === "synthetic" || kind === undefined) return false;
  const isOpen = (rule: (typeof rules)[number]): boolean =>
    (rule.protocol ?? (rule.action === "allow" ? "tcp" : protocol)) === protocol &&
    (rule.ports ?? [[1, 65535]]).some(([first, last]) => port >= first && port <= last);
  const matchesAddress = ({ target }: (typeof rules)[number]): boolean => {
    const parsed = address === undefined ? undefined : parseAddress(address);
    if (target.kind !== "cidr" || parsed?.family !== 4 || target.address.family !== 4) return false;
    return mask4(parsed.value, target.prefix) === target.address.value;
  };
  const first = rules.find((rule) => {
    const { target } = rule;
    if (!isOpen(rule)) return false;
    if (target.kind === "any") return kind === "public" || rule.action === "deny";
    if (target.kind === "name") return target.name === name;
    if (target.kind === "wildcard") return name?.endsWith(`.${target.suffix}`) === true;
    return matchesAddress(rule);
  });
  if (first?.action === "deny") return false;
  const firstRange = rules.find((rule) => isOpen(rule) && matchesAddress(rule));
  if (kind !== "public" && firstRange?.action !== "allow") return false;
  return first !== undefined || (mode === "open" && protocol === "tcp");
}

test("decide() agrees with a slow reference for random rules", () => {
  const { pick, below } = random();
  const names = ["a.com", "b.a.com", "c.b.a.com", "x.org", "a.x.org", "com"];
  const addresses = ["10.0.0.1", "10.0.1.1", "192.0.2.1", "192.0.2.200", "127.0.0.1", "203.0.113.9"];
  const targets = [
    ...names,
    "*.a.com",
    "*.b.a.com",
    "*.com",
    "*.org",
    "*",
    "10.0.0.0/8",
    "10.0.1.0/24",
    "192.0.2.0/24",
    "192.0.2.128/25",
    ...addresses,
  ];
  const ports = ["", ":443", ":80,443", ":1-100", ":*"];
  for (let round = 0; round < 3000; round++) {
    const mode = pick(["filtered", "filtered", "open", "none"] as const);
    const rules = Array.from(
      { length: below(12) },
      () => `${pick(["allow", "deny"])} ${pick(["", "tcp "])}${pick(targets)}${pick(ports)}`,
    );
    const policy = compile(mode, rules);
    for (let each = 0; each < 10; each++) {
      const destination: Destination = {
        protocol: pick(["tcp", "tcp", "udp"] as const),
        port: pick([22, 80, 443, 8080]),
        ...(below(3) > 0 && { name: pick(names) }),
        ...(below(2) > 0 && { address: pick(addresses) }),
      };
      if (destination.name === undefined && destination.address === undefined) continue;
      assert.equal(
        policy.decide(destination).allowed,
        slowly(mode, rules, destination),
        JSON.stringify({ mode, rules, destination }),
      );
    }
  }
});

test("10,000 domain rules compile and decide", (t) => {
  const { compileMs, decideMicroseconds } = decideBenchmark(10_000);
  t.diagnostic(`compile ${compileMs.toFixed(1)} ms, decide ${decideMicroseconds.toFixed(2)} µs`);
});
