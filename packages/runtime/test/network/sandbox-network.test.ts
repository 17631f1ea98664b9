import assert from "node:assert/strict";
import { test } from "node:test";
import {
  branchedNetwork,
  newNetwork,
  noNetwork,
  policyOf,
  toSnapshotNetwork,
} from "../../src/network/sandbox-network.ts";

const defaults = { mode: "filtered", rules: ["allow last.test"], deny: ["deny never.test"] } as const;
const narrow = { name: "narrow", network: { mode: "filtered", rules: ["allow good.test:80"] } } as const;
const same = (rules: readonly string[]) => [...rules];

test("newNetwork() takes the mode of the call, then of the snapshot, then of the settings", () => {
  const base = { defaults, caller: undefined, secrets: {} };
  assert.equal(newNetwork({ ...base, asked: undefined, snapshot: undefined }).mode, "filtered");
  assert.equal(newNetwork({ ...base, asked: undefined, snapshot: { mode: "none" } }).mode, "none");
  const asked = { mode: "open", rules: [] } as const;
  assert.equal(
    newNetwork({ ...base, asked: { ...asked, rules: [] }, snapshot: { mode: "none" } }).mode,
    "open",
  );
});

test("policyOf() tries what the settings deny first, and their other rules last", () => {
  const network = {
    ...noNetwork,
    mode: "filtered",
    rules: ["allow own.test"],
    inherited: ["allow snap.test"],
  } as const;
  assert.deepEqual(policyOf(network, defaults, same).rules, [
    "deny never.test",
    "allow own.test",
    "allow snap.test",
    "allow last.test",
  ]);
});

test("the ceiling of a key stays with a sandbox, its branches, and forks of those by others", () => {
  const asked = { mode: "open" as const, rules: ["allow 127.0.0.1"] };
  const made = newNetwork({ asked, snapshot: undefined, defaults, caller: narrow, secrets: {} });
  assert.deepEqual(made.ceilings, [narrow.network]);
  assert.deepEqual(branchedNetwork(made, undefined, undefined, {}).ceilings, [narrow.network]);
  assert.deepEqual(branchedNetwork(made, undefined, narrow, {}).ceilings, [narrow.network]);
  const snapshot = toSnapshotNetwork(made);
  const forked = newNetwork({ asked: undefined, snapshot, defaults, caller: undefined, secrets: {} });
  assert.deepEqual(forked.ceilings, [narrow.network]);
});
