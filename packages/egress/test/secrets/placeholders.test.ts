import assert from "node:assert/strict";
import { test } from "node:test";
import { gatewayTarget } from "../../src/secrets/gateway.ts";
import { isHostOf } from "../../src/secrets/hosts.ts";
import { faultInPlainHeaders, needlesFor, rewriteHeaders } from "../../src/secrets/placeholders.ts";
import { Scrubber } from "../../src/secrets/scrubber.ts";
import { host, otherPlaceholder, otherSecret, placeholder, secret, value } from "../support/intercepted.ts";

const secrets = [secret, otherSecret];
const target = { name: host, port: 443 };

test("isHostOf() compares name and port; a wildcard covers all names below it, not itself", () => {
  const hosts = ["api.example.com", "*.example.org", "x.example.net:8443"];
  assert.ok(isHostOf(hosts, "api.example.com", 443));
  assert.ok(isHostOf(hosts, "a.example.org", 443));
  assert.ok(isHostOf(hosts, "a.b.example.org", 443));
  assert.ok(isHostOf(hosts, "x.example.net", 8443));
  for (const [name, port] of [
    ["api.example.com", 80],
    ["api.example.com", 8443],
    ["sub.api.example.com", 443],
    ["xapi.example.com", 443],
    ["example.org", 443],
    ["evilexample.org", 443],
    ["x.example.net", 443],
  ] as const)
    assert.ok(!isHostOf(hosts, name, port), `${name}:${port}`);
});

test("rewriteHeaders() replaces only complete placeholders in the header of the secret", () => {
  const part = placeholder.slice(0, -1);
  const raw = ["Authorization", `Token a=${placeholder}, b=${placeholder}`, "X-Part", part, "X-Empty", ""];
  const result = rewriteHeaders(raw, target, secrets);
  assert.deepEqual("headers" in result && result.headers, [
    ...["Authorization", `Token a=${value}, b=${value}`],
    ...["X-Part", part, "X-Empty", ""],
  ]);
  const inName = rewriteHeaders([placeholder, "x"], target, secrets);
  assert.ok("refused" in inName);
});

test("rewriteHeaders() does not read a value as a pattern", () => {
  const odd = { ...secret, value: "$&$1$$-odd-value" };
  const result = rewriteHeaders(["authorization", `Bearer ${placeholder}`], target, [odd]);
  assert.deepEqual("headers" in result && result.headers, ["authorization", "Bearer $&$1$$-odd-value"]);
});

test("plain HTTP carries no placeholder, whatever its host", () => {
  const basic = Buffer.from(`u:${placeholder}`).toString("base64");
  for (const raw of [
    ["Authorization", `Bearer ${placeholder}`],
    ["Authorization", `Basic ${basic}`],
    ["X-Any", otherPlaceholder],
    ["Authorization", `Bearer forkd-secret-${"0".repeat(32)}`],
  ])
    assert.ok(faultInPlainHeaders(raw, host, secrets) !== undefined, raw.join(": "));
  assert.equal(faultInPlainHeaders(["Authorization", "Bearer other"], host, secrets), undefined);
});

test("Scrubber finds values across any border of chunks and keeps the length", () => {
  const text = `a${value}b${value}${value.slice(0, 5)}${value}c${value.slice(0, 7)}`;
  const mask = placeholder.slice(0, value.length);
  for (let size = 1; size <= text.length; size++) {
    const scrubber = new Scrubber(needlesFor(target, secrets));
    const parts: Buffer[] = [];
    for (let at = 0; at < text.length; at += size)
      parts.push(scrubber.push(Buffer.from(text.slice(at, at + size))));
    parts.push(scrubber.end());
    assert.equal(Buffer.concat(parts).toString(), text.replaceAll(value, mask));
  }
});

test("Scrubber holds back only the start of a value, and does not change the chunk it was given", () => {
  const scrubber = new Scrubber([{ text: "secret-value", placeholder: "short" }]);
  const chunk = Buffer.from("x secret-value y sec");
  const copy = Buffer.from(chunk);
  assert.equal(scrubber.push(chunk).toString(), "x short******* y ");
  assert.deepEqual(chunk, copy);
  assert.equal(scrubber.push(Buffer.from("ond")).toString(), "second");
  assert.equal(scrubber.push(Buffer.from("data: s")).toString(), "data: ");
  assert.equal(scrubber.end().toString(), "s");
});

test("Scrubber finds values as they stand in URLs and JSON, and leaves short values alone", () => {
  const odd = { ...secret, value: 'pass"word/&+1' };
  const scrubber = new Scrubber(needlesFor(target, [odd]));
  for (const form of [odd.value, encodeURIComponent(odd.value), JSON.stringify(odd.value).slice(1, -1)])
    assert.equal(scrubber.text(`a ${form} b`), `a ${placeholder} b`);
  assert.ok(new Scrubber(needlesFor(target, [{ ...secret, value: "short" }])).isEmpty);
  assert.ok(new Scrubber(needlesFor({ name: "unrelated.example.com", port: 443 }, secrets)).isEmpty);
});

test("gatewayTarget() stands for the first exact host, with the header of the secret", () => {
  const wide = { ...secret, hosts: ["*.example.org", "b.example.org:8443", "c.example.org"] };
  const result = gatewayTarget("/OPENAI/v1/chat?x=/../y&z=%2e", [wide]);
  assert.ok(result && "target" in result);
  const { response, ...rest } = result.target;
  assert.deepEqual(rest, {
    name: "b.example.org",
    port: 8443,
    path: "/v1/chat?x=/../y&z=%2e",
    headers: [
      ...["Host", "b.example.org:8443"],
      ...["authorization", `Bearer ${value}`],
      ...["Accept-Encoding", "identity"],
    ],
  });
  assert.deepEqual(response.headers(["X-Echo", value]), ["X-Echo", placeholder]);
  assert.equal(response.push(Buffer.from(`${value}!`)).toString(), `${placeholder.slice(0, value.length)}!`);
  for (const [path, sent] of [
    ["/OPENAI", "/"],
    ["/OPENAI/", "/"],
    ["/OPENAI?q", "/?q"],
    ["/OPENAI//x", "//x"],
    ["/OPENAI/...", "/..."],
    ["/OPENAI/.well-known/x", "/.well-known/x"],
  ] as const) {
    const found = gatewayTarget(path, secrets);
    assert.equal(found && "target" in found && found.target.path, sent);
  }
});

test("gatewayTarget() refuses dot segments, encoded or not, and never leaves the secret that the path names", () => {
  for (const path of [
    "/OPENAI/../OTHER/x",
    "/OPENAI/..",
    "/OPENAI/./x",
    "/OPENAI/%2e%2e/OTHER",
    "/OPENAI/.%2E/OTHER",
    "/OPENAI/a/..%2fOTHER",
    "/OPENAI/a%2F..%2fb",
    "/OPENAI/..\\OTHER",
    "/OPENAI/x y",
    "/OPENAI/\u00fc",
    `/OPENAI/${otherPlaceholder}`,
    `/OPENAI/?key=${placeholder}`,
  ])
    assert.ok("refused" in (gatewayTarget(path, secrets) ?? {}), path);
  for (const path of [
    "/",
    "",
    "/openai/x",
    "/MISSING/x",
    "/OPENAI%2fx",
    "OPENAI/x",
    "//OPENAI/x",
    "/../OPENAI/x",
    "/OPENAI/x#y",
  ])
    assert.equal(gatewayTarget(path, secrets), undefined, path);
  const onlyWide = { ...secret, hosts: ["*.example.org"] };
  const result = gatewayTarget("/OPENAI/x", [onlyWide]);
  assert.match(result && "refused" in result ? result.refused : "", /only hosts with a wildcard/);
});
