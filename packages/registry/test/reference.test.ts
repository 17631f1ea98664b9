import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { formatReference, parseReference, parseRegistry } from "../src/reference.ts";

const hex = "a".repeat(64);

test("parseReference() reads hosts, ports, tags and digests", () => {
  const cases: [string, string][] = [
    ["ghcr.io/team/python:v1", "ghcr.io/team/python:v1"],
    ["localhost:5000/a/b/c", "localhost:5000/a/b/c"],
    ["localhost/a", "localhost/a"],
    ["127.0.0.1:5000/x:1.2-3", "127.0.0.1:5000/x:1.2-3"],
    ["[::1]:5000/x:t", "[::1]:5000/x:t"],
    [`ghcr.io/x/y@sha256:${hex}`, `ghcr.io/x/y@sha256:${hex}`],
    [`ghcr.io/x/y:t@sha256:${hex}`, `ghcr.io/x/y:t@sha256:${hex}`],
    ["GHCR.io/x/y:T", "ghcr.io/x/y:T"],
  ];
  for (const [text, expected] of cases) assert.equal(formatReference(parseReference(text)), expected, text);
});

test("parseReference() completes names of Docker Hub", () => {
  const cases: [string, string][] = [
    ["debian", "docker.io/library/debian"],
    ["debian:12", "docker.io/library/debian:12"],
    ["team/tool:1", "docker.io/team/tool:1"],
    ["docker.io/debian", "docker.io/library/debian"],
    ["index.docker.io/library/debian", "docker.io/library/debian"],
  ];
  for (const [text, expected] of cases) assert.equal(formatReference(parseReference(text)), expected, text);
});

test("parseReference() refuses what no registry accepts, and names the reason", () => {
  const cases: [string, RegExp][] = [
    ["", /names no repository/],
    ["ghcr.io/", /names no repository/],
    ["ghcr.io/Upper/x", /lower-case/],
    ["ghcr.io/a//b", /lower-case/],
    ["ghcr.io/../../x", /lower-case/],
    ["ghcr.io/a:", /the tag ""/],
    ["ghcr.io/a:-x", /the tag "-x"/],
    ["ghcr.io/a@sha256:abc", /is not a digest/],
    ["https://ghcr.io/a", /scheme/],
    ["ghcr.io:99999/a", /99999 is not a port/],
    ["ex ample.io/a", /host|lower-case/],
    [`ghcr.io/${"a".repeat(1100)}`, /longer than/],
    [`ghcr.io/${"a".repeat(300)}`, /repository/],
  ];
  for (const [text, reason] of cases) {
    assert.throws(
      () => parseReference(text),
      (error) => error instanceof AppError && error.code === "invalid_request" && reason.test(error.message),
      text,
    );
  }
});

test("parseRegistry() has one name for each registry", () => {
  const cases: [string, string][] = [
    ["registry-1.docker.io", "docker.io"],
    ["index.docker.io:443", "docker.io"],
    ["Example.com:443", "example.com"],
    ["example.com:5000", "example.com:5000"],
    ["127.1:5000", "127.0.0.1:5000"],
    ["[0:0:0:0:0:0:0:1]:5000", "[::1]:5000"],
  ];
  for (const [text, expected] of cases) assert.equal(parseRegistry(text), expected, text);
  assert.throws(() => parseRegistry("999.1.1.1"), /is not a host/);
});
