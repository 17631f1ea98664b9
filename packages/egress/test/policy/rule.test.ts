import assert from "node:assert/strict";
import test from "node:test";
import { AppError } from "@forkd/contract";
import { formatRule, parseRule } from "../../src/policy/rule.ts";
import { expandPresets, parseRules, builtInPresets } from "../../src/policy/presets.ts";
import { random } from "../support/random.ts";

const normalForms: readonly (readonly [text: string, normal: string])[] = [
  ["allow example.com", "allow example.com"],
  ["  allow   TCP.example.COM.  ", "allow tcp.example.com"],
  ["allow tcp example.com:443", "allow tcp example.com:443"],
  ["deny udp *", "deny udp *"],
  ["allow *:443,80,81-90,85-95", "allow *:80-95,443"],
  ["allow *.example.com:*", "allow *.example.com"],
  ["allow bücher.example", "allow xn--bcher-kva.example"],
  ["allow *.BÜCHER.example:443", "allow *.xn--bcher-kva.example:443"],
  ["allow 10.1.2.3", "allow 10.1.2.3"],
  ["allow 10.1.2.0/24:5432", "allow 10.1.2.0/24:5432"],
  ["allow 10.1.2.3/32", "allow 10.1.2.3"],
  ["allow 2001:DB8::/32", "allow [2001:db8::/32]"],
  ["allow [2001:db8::1]:443", "allow [2001:db8::1]:443"],
  ["allow [2001:db8::/32]:443", "allow [2001:db8::/32]:443"],
  ["allow [2001:db8::]/32:443", "allow [2001:db8::/32]:443"],
  ["allow ::ffff:10.1.2.3", "allow 10.1.2.3"],
  ["deny 0.0.0.0/0", "deny 0.0.0.0/0"],
  ["deny ::/0", "deny [::/0]"],
  ["allow udp ntp.example:123", "allow udp ntp.example:123"],
  ["allow udp 192.0.2.7:3478,5349", "allow udp 192.0.2.7:3478,5349"],
  ["allow preset:pypi", "allow preset:pypi"],
  ["allow _dmarc.example_x.com", "allow _dmarc.example_x.com"],
];

test("parseRule() and formatRule() agree on the normal form", () => {
  for (const [text, normal] of normalForms) {
    assert.equal(formatRule(parseRule(text)), normal, text);
    assert.deepEqual(parseRule(normal), parseRule(text), text);
  }
});

const faults: readonly (readonly [text: string, part: RegExp])[] = [
  ["", /"" is not an action/],
  ["permit example.com", /"permit" is not an action/],
  ["allow", /no destination/],
  ["allow sctp example.com", /"sctp" is not a protocol/],
  ["allow tcp example.com 443", /"443" is one word too many/],
  ["allow example.com:0", /"0" is not a port/],
  ["allow example.com:65536", /"65536" is not a port/],
  ["allow example.com:90-80", /"90-80" is not a port/],
  ["allow example.com:", /"" is not a port/],
  ["allow example.com:http", /"http" is not a port/],
  ["allow a..b", /"a\.\.b" is not a host name/],
  ["allow -a.example", /is not a host name/],
  ["allow ex ample.com", /"ex" is not a protocol/],
  ["allow user@example.com", /is not a host name/],
  ["allow http://example.com", /not an address or a range|not a port/],
  ["allow a.*.example.com", /\* that is not its first part/],
  ["allow *example.com", /\* that is not its first part/],
  ["allow *.*", /is not a host name/],
  ["allow 010.0.0.1", /usual form/],
  ["allow 0x7f.0.0.1", /usual form/],
  ["allow 2130706433", /usual form/],
  ["allow 127.1", /usual form/],
  ["allow 10.0.0.256", /usual form/],
  ["allow １２７.0.0.1", /usual form|not a host name/],
  ["allow 10.1.2.3/8", /first address of its range/],
  ["allow 10.0.0.0/33", /"\/33" is not a prefix length/],
  ["allow 10.0.0.0/x", /"\/x" is not a prefix length/],
  ["allow 10.0.0.0/8/8", /not an address or a range/],
  ["allow 0.0.0.0/0", /private addresses/],
  ["allow 64.0.0.0/2", /private addresses/],
  ["allow ::/0", /private addresses/],
  ["allow fe80::1%eth0", /not an address or a range/],
  ["allow [::1", /not an address or a range|not a host name/],
  ["allow udp *:53", /one host at a time/],
  ["allow udp 10.0.0.0/24:53", /one host at a time/],
  ["allow udp ntp.example", /too many UDP ports/],
  ["allow udp ntp.example:1-1000", /too many UDP ports/],
  ["allow preset:pypi:443", /not the name of a preset/],
  [`allow ${"a".repeat(64)}.example`, /is not a host name/],
  [`allow ${"a.".repeat(130)}example`, /is not a host name/],
  [`allow ${"a".repeat(600)}`, /too long/],
];

test("parseRule() names the part that is wrong, with a remedy", () => {
  for (const [text, part] of faults) {
    assert.throws(
      () => parseRule(text),
      (error) => {
        assert.ok(error instanceof AppError, text);
        assert.equal(error.code, "invalid_request");
        assert.match(error.message, part, text);
        assert.ok(error.remedy, text);
        return true;
      },
      text,
    );
  }
});

test("parseRule() either throws AppError or gives a rule whose normal form is stable", () => {
  const { pick, below } = random();
  const pieces =
    "allow deny tcp udp * *. example .com 10.0.0.0 /8 :443 : [ ] :: 2001:db8 , - 80-90 preset: é \0 %".split(
      " ",
    );
  let parsed = 0;
  for (let round = 0; round < 20_000; round++) {
    const words = ["allow", ...(below(3) === 0 ? ["udp"] : [])];
    words.push(Array.from({ length: 1 + below(5) }, () => pick(pieces)).join(""));
    const text = words.join(" ");
    try {
      const normal = formatRule(parseRule(text));
      assert.equal(formatRule(parseRule(normal)), normal, text);
      parsed++;
    } catch (error) {
      assert.ok(error instanceof AppError, `${JSON.stringify(text)}: ${String(error)}`);
    }
  }
  assert.ok(parsed > 100);
});

test("presets are valid rules and take the action of the rule that names them", () => {
  for (const name of Object.keys(builtInPresets)) assert.ok(parseRules([`allow preset:${name}`]).length > 0);
  assert.deepEqual(expandPresets(["deny preset:pypi"], builtInPresets), [
    "deny pypi.org:443",
    "deny files.pythonhosted.org:443",
  ]);
  assert.throws(() => parseRules(["allow preset:nothing"]), /no preset "nothing"/);
  assert.throws(() => parseRules(["allow preset:a"], { a: ["allow preset:b"] }), /names another preset/);
  assert.throws(() => parseRules(["allow preset:constructor"]), /no preset/);
});
