import assert from "node:assert/strict";
import { test } from "node:test";
import type { JailFacts } from "@forkd/machine";
import { jail, network, tracking, uids } from "../../src/doctor/isolation.ts";

const best: JailFacts = { variant: "root", netdev: "tap", missing: [] };
const auto = { jail: { mode: "auto", uids: { first: 1000, count: 100 } } } as const;

test("jail() is content only with the strongest variant, and says what is missing", () => {
  assert.equal(jail(best, auto).outcome, "ok");
  const user = jail({ ...best, variant: "user", missing: ["own uid: not root"] }, auto);
  assert.equal(user.outcome, "warn");
  assert.match(user.detail, /own uid: not root/);
  const none: JailFacts = { ...best, variant: "none", missing: ["jail: no namespaces"] };
  assert.equal(jail(none, auto).outcome, "warn");
  const required = { jail: { ...auto.jail, mode: "require" } } as const;
  assert.equal(jail(none, required).outcome, "fail");
});

test("network() says why sandboxes have none, or a slower one", () => {
  assert.equal(network(best).outcome, "ok");
  assert.match(network({ ...best, netdev: "slirp" }).detail, /slower than a tap/);
  assert.match(network({ ...best, netdev: "none", missing: ["jail: off"] }).detail, /jail: off/);
});

test("uids() warns if two machines could share a uid", () => {
  assert.deepEqual(uids(best, auto, 100), []);
  assert.deepEqual(uids({ variant: "user" }, auto, 32_768), []);
  assert.match(uids(best, auto, 32_768)[0]?.detail ?? "", /100 uids for 32768 process ids/);
});

test("tracking() warns with the reason if writes cannot be tracked", () => {
  assert.equal(tracking(undefined).outcome, "ok");
  const finding = tracking("cannot open /dev/userfaultfd: Permission denied");
  assert.equal(finding.outcome, "warn");
  assert.match(finding.detail, /while the sandbox is paused: cannot open .*denied$/);
});
