import assert from "node:assert/strict";
import { test } from "node:test";
import { networkLogEntrySchema, networkRoutes, networkSchema } from "../src/network.ts";
import { isEventFilter, matchesType } from "../src/wire/event-types.ts";
import { routes } from "../src/routes.ts";
import { assertAccepted, assertRefused } from "./support.ts";

const id = `sb-${"0".repeat(24)}`;

test("setNetwork fills in absent lists and refuses unknown fields", () => {
  const { input } = networkRoutes.setNetwork;
  assert.deepEqual(input.parse({ id }), { id, add: [], remove: [] });
  assertAccepted(input, { id, mode: "none", rules: [], secrets: [] });
  assertAccepted(input, { id, add: Array.from({ length: 10_000 }, () => "allow a.example") });
  for (const [value, path] of [
    [{ id, mode: "half" }, "mode"],
    [{ id, add: ["x".repeat(513)] }, "add.0"],
    [{ id, rules: [""] }, "rules.0"],
    [{ id, add: Array.from({ length: 10_001 }, () => "allow a.example") }, "add"],
    [{ id, secrets: ["A-B"] }, "secrets.0"],
    [{ id, secrets: Array.from({ length: 65 }, (_, n) => `A${n}`) }, "secrets"],
    [{ id, allow: ["x"] }, ""],
  ] as const)
    assertRefused(input, value, path);
});

test("networkLog takes follow and tail from the query", () => {
  const { input } = networkRoutes.networkLog;
  assert.deepEqual(input.parse({ id, follow: "true", tail: "5" }), { id, follow: true, tail: 5 });
  for (const tail of ["0", "1001", "x"]) assertRefused(input, { id, tail }, "tail");
});

test("setSecret needs a name, a value and hosts", () => {
  const { input } = networkRoutes.setSecret;
  const secret = { name: "API_KEY", value: "x", hosts: ["api.example.com"] };
  assertAccepted(input, secret);
  assertAccepted(input, { ...secret, header: "X-Key", format: "{}" });
  for (const [more, path] of [
    [{ name: "api_key" }, "name"],
    [{ name: "A".repeat(65) }, "name"],
    [{ value: "" }, "value"],
    [{ value: "x".repeat(65_537) }, "value"],
    [{ hosts: [] }, "hosts"],
    [{ placeholder: "p" }, ""],
  ] as const)
    assertRefused(input, { ...secret, ...more }, path);
});

test("setPreset needs a name and at least one rule", () => {
  const { input } = networkRoutes.setPreset;
  assertAccepted(input, { name: "my-mirror", rules: ["allow mirror.example"] });
  assertRefused(input, { name: "My", rules: ["allow x"] }, "name", /must be 1 to 32/);
  assertRefused(input, { name: "my", rules: [] }, "rules");
});

test("only administrators change secrets and presets, and only `run` reads the log", () => {
  const scopes = Object.fromEntries(Object.entries(networkRoutes).map(([name, { scope }]) => [name, scope]));
  assert.deepEqual(scopes, {
    getNetwork: "read",
    setNetwork: "run",
    networkLog: "run",
    listPresets: "read",
    setPreset: "admin",
    removePreset: "admin",
    listSecrets: "run",
    setSecret: "admin",
    removeSecret: "admin",
  });
  for (const name of Object.keys(networkRoutes)) assert.ok(Object.hasOwn(routes, name), name);
});

test("no answer about secrets has a field for the value", () => {
  const { output } = networkRoutes.setSecret;
  assert.ok(!("value" in output.shape));
  assert.deepEqual(
    Object.keys(output.shape).toSorted(),
    ["name", "hosts", "header", "format", "placeholder", "created_at_unix", "updated_at_unix"].toSorted(),
  );
});

test("networkSchema and networkLogEntrySchema accept what the daemon answers", () => {
  const counters = { connections: 1, open_connections: 1, denied: 0, failed: 0, queries: 1 };
  assertAccepted(networkSchema, {
    mode: "filtered",
    device: "tap",
    rules: [{ rule: "allow *:443", from: "settings" }],
    ceilings: [{ from: "key", mode: "open", rules: [] }],
    secrets: [],
    counters: { ...counters, bytes_sent: 1, bytes_received: 2 },
  });
  assertAccepted(networkLogEntrySchema, {
    at_unix: 1.5,
    event: "denied",
    protocol: "dns",
    name: "a.example",
  });
});

test("network.* selects the events of networks", () => {
  assert.ok(isEventFilter("network.*") && isEventFilter("network.denied"));
  assert.ok(matchesType("network.denied", ["network.*"]));
  assert.ok(!matchesType("sandbox.died", ["network.*"]));
});
