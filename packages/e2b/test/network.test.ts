import assert from "node:assert/strict";
import { test } from "node:test";
import { policyOf } from "../src/control/network.ts";
import { rejectsAs } from "./rejects-as.ts";

test("policyOf() opens the network unless the request closes it", () => {
  assert.deepEqual(policyOf({}), { mode: "open", rules: [] });
  assert.deepEqual(policyOf({ internet: null, network: { rules: {}, httpsPorts: [] } }), {
    mode: "open",
    rules: [],
  });
  assert.deepEqual(policyOf({ internet: false }), { mode: "filtered", rules: ["deny *"] });
  assert.deepEqual(policyOf({ network: { denyOut: ["::/0"] } }), { mode: "filtered", rules: ["deny *"] });
});

test("policyOf() puts what is allowed before what is denied", () => {
  const network = { allowOut: ["10.1.2.3", "2001:db8::1"], denyOut: ["10.0.0.0/8", "2001:db8::/32"] };
  assert.deepEqual(policyOf({ network }), {
    mode: "open",
    rules: ["allow 10.1.2.3", "allow [2001:db8::1]", "deny 10.0.0.0/8", "deny [2001:db8::/32]"],
  });
  const all = { allowOut: ["0.0.0.0/0"], denyOut: ["192.0.2.0/24"] };
  assert.deepEqual(policyOf({ network: all }).rules, ["allow *", "deny 192.0.2.0/24"]);
});

test("policyOf() takes names only where everything else is denied", () => {
  const allowOut = ["API.example.com.", "*.example.org"];
  const network = { allowOut, denyOut: ["0.0.0.0/0"] };
  const rules = ["allow api.example.com", "allow *.example.org", "deny *"];
  assert.deepEqual(policyOf({ network }), { mode: "filtered", rules });
  assert.deepEqual(policyOf({ internet: false, network: { allowOut } }), { mode: "filtered", rules });
  rejectsAs("invalid_request", /needs all other traffic to be denied/, () =>
    policyOf({ network: { allowOut: ["example.com"] } }),
  );
});

test("policyOf() refuses what it cannot express, and names the field", () => {
  for (const [field, network] of Object.entries({
    "network.rules": { rules: { "example.com": [] } },
    "network.egressProxy": { egressProxy: { host: "p" } },
    "network.maskRequestHost": { maskRequestHost: "x" },
    "network.httpsPorts": { httpsPorts: [443] },
    'network.allowOut "0.0.0.0/1"': { allowOut: ["0.0.0.0/1"] },
  }))
    rejectsAs("unsupported", new RegExp(`^${field.replaceAll(".", "\\.")}`), () => policyOf({ network }));
  for (const wrong of ["", "a b", "1.2.3.4/33", "::1/129", "1.2.3.4/8/8", "-x.example.com", "localhost"])
    rejectsAs("invalid_request", /^Invalid request: network/, () =>
      policyOf({ internet: false, network: { allowOut: [wrong] } }),
    );
  rejectsAs("invalid_request", /denyOut/, () => policyOf({ network: { denyOut: ["example.com"] } }));
});
