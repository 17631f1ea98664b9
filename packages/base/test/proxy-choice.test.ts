import assert from "node:assert/strict";
import { test } from "node:test";
import { proxiesOf, ProxyChoice } from "../src/proxy-choice.ts";

test("ProxyChoice reads the variables as other programs do", () => {
  const choice = new ProxyChoice({
    https: "http://proxy:3128",
    none: " .corp.example, other.example,10.0.0.1, x.example:8443,192.0.2.0/24,2001:db8::/32",
  });
  const isDirect = (host: string, port = 443): boolean => choice.proxyFor(host, port, "https") === undefined;
  assert.deepEqual(choice.proxyFor("a.example", 443, "https"), { host: "proxy", port: 3128 });
  for (const host of [
    "corp.example",
    "a.corp.example",
    "other.example",
    "b.other.example",
    "10.0.0.1",
    "192.0.2.9",
    "2001:db8::1",
  ])
    assert.ok(isDirect(host), host);
  for (const host of ["notcorp.example", "10.0.0.10", "x.example", "192.0.3.9"])
    assert.ok(!isDirect(host), host);
  assert.ok(isDirect("x.example", 8443));
  assert.equal(choice.proxyFor("a.example", 80, "http"), undefined);
  assert.equal(new ProxyChoice({ https: "http://p", none: "*" }).proxyFor("a", 1, "https"), undefined);
  const named = new ProxyChoice({ http: "user:p%40ss@proxy:8080" }).proxyFor("a.example", 80, "http");
  const authorization = `Basic ${Buffer.from("user:p@ss").toString("base64")}`;
  assert.deepEqual(named, { host: "proxy", port: 8080, authorization });
  assert.throws(() => new ProxyChoice({ http: "socks5://p" }), /only http/);
});

test("proxiesOf() prefers the variables in lower case", () => {
  const environment = { https_proxy: "http://a", HTTPS_PROXY: "http://b", NO_PROXY: "c" };
  assert.deepEqual(proxiesOf(environment), { http: undefined, https: "http://a", none: "c" });
});
