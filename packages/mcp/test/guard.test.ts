import assert from "node:assert/strict";
import { test } from "node:test";
import { checkBrowserTraps, isLoopback } from "../src/http/guard.ts";

const allowed = { hosts: ["mcp.example.com", "other.example:8443"], scheme: "http" } as const;

test("checkBrowserTraps() accepts loopback and the names that are allowed", () => {
  const accepted: [host: string, origin?: string][] = [
    ["127.0.0.1:8890"],
    ["localhost:8890"],
    ["[::1]:8890"],
    ["mcp.example.com"],
    ["mcp.example.com:443", "https://mcp.example.com"],
    ["other.example:8443"],
    ["127.0.0.1:8890", "http://127.0.0.1:8890"],
  ];
  for (const [host, origin] of accepted) checkBrowserTraps({ host, origin, fetchSite: undefined }, allowed);
});

test("checkBrowserTraps() refuses other names and the pages of other sites", () => {
  const refused: [host: string | undefined, origin?: string | undefined, fetchSite?: string][] = [
    [undefined],
    ["evil.example"],
    ["127.0.0.1.evil.example"],
    ["other.example:80"],
    ["user@127.0.0.1"],
    ["127.0.0.1:8890", "http://evil.example"],
    ["127.0.0.1:8890", "null"],
    // Another port of this host is another program.
    ["127.0.0.1:8890", "http://127.0.0.1:3000"],
    ["127.0.0.1:8890", "https://127.0.0.1:8890"],
    ["127.0.0.1:8890", "ftp://mcp.example.com"],
    ["127.0.0.1:8890", undefined, "cross-site"],
    ["127.0.0.1:8890", undefined, "same-site"],
  ];
  for (const [host, origin, fetchSite] of refused)
    assert.throws(
      () => checkBrowserTraps({ host, origin, fetchSite }, allowed),
      { code: "forbidden" },
      String(host),
    );
});

test("checkBrowserTraps() accepts the address that the connection came in on", () => {
  const request = { host: "192.0.2.7:443", origin: undefined, fetchSite: undefined };
  checkBrowserTraps({ ...request, localAddress: "::ffff:192.0.2.7" }, allowed);
  for (const localAddress of ["192.0.2.8", undefined])
    assert.throws(() => checkBrowserTraps({ ...request, localAddress }, allowed), { code: "forbidden" });
});

test("isLoopback() knows the addresses of this machine", () => {
  assert.deepEqual(
    ["127.0.0.1", "127.9.9.9", "localhost", "::1", "0.0.0.0", "192.168.0.1", "::", "localhost.evil"].map(
      isLoopback,
    ),
    [true, true, true, true, false, false, false, false],
  );
});
