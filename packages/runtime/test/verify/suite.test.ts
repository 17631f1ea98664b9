import assert from "node:assert/strict";
import { test } from "node:test";
import { hazardIds } from "@forkd/contract";
import { CannotCheck, fail, shared, type Lab, type Subject } from "../../src/verify/hazard.ts";
import { hazards } from "../../src/verify/hazards.ts";
import { checkAll, prepareAll } from "../../src/verify/suite.ts";
import { until } from "../support.ts";
import { hazard } from "./lab.ts";

// The hazards of these tests do not look at it.
const lab = {} as Lab;
const source = {} as Subject;
const { signal } = new AbortController();
const unprepared = new Map<never, never>();
const nothing = () => undefined;

test("there is a hazard for each id of the contract, in its order", () => {
  assert.deepEqual(
    hazards.map(({ id }) => id),
    hazardIds,
  );
  for (const { title, policy, mechanism } of hazards)
    for (const text of [title, policy, mechanism]) assert.ok(text.length > 3);
});

test("checkAll() reports each result as it comes, and all in the order of the hazards", async () => {
  let open: () => void = nothing;
  const gate = new Promise<void>((resolve) => (open = resolve));
  const slow = hazard({ check: () => gate.then(() => fail("slow")) }, "clock");
  const seen: string[] = [];
  const done = checkAll([slow, hazard()], lab, { unprepared, signal, onResult: ({ id }) => seen.push(id) });
  await until("the fast one is reported", () => seen.length === 1);
  open();
  assert.deepEqual(
    (await done).map(({ id, outcome, detail }) => [id, outcome, detail]),
    [
      ["clock", "fail", "slow"],
      ["entropy", "pass", "fine"],
    ],
  );
  assert.deepEqual(seen, ["entropy", "clock"]);
});

test("checkAll() counts a check that throws or does not end as failed, and never as passed", async () => {
  const throwing = hazard({ check: () => Promise.reject(new Error("no such sandbox")) });
  const hanging = hazard({ check: () => new Promise(() => undefined) }, "clock");
  const found = await checkAll([throwing, hanging], lab, {
    unprepared,
    signal,
    onResult: nothing,
    timeoutMs: 20,
  });
  assert.deepEqual(
    found.map(({ outcome }) => outcome),
    ["fail", "fail"],
  );
  assert.match(found[0]?.detail ?? "", /no such sandbox/);
  assert.match(found[1]?.detail ?? "", /not done within/);
});

test("checkAll() reports what an image lacks as not applicable", async () => {
  const lacking = hazard({ check: () => Promise.reject(new CannotCheck("no python3")) });
  const absent = hazard(
    { check: () => Promise.reject(new CannotCheck("no device", { absent: true })) },
    "network",
  );
  const found = await checkAll([lacking, absent], lab, { unprepared, signal, onResult: nothing });
  assert.deepEqual(
    found.map(({ outcome, detail, absent: isAbsent }) => [outcome, detail, isAbsent]),
    [
      ["not_applicable", "no python3", undefined],
      ["not_applicable", "no device", true],
    ],
  );
});

test("checkAll() stops at once when its caller has gone", async () => {
  const abort = new AbortController();
  const hanging = hazard({ check: () => new Promise(() => undefined) });
  const done = checkAll([hanging], lab, { unprepared, signal: abort.signal, onResult: () => assert.fail() });
  abort.abort(new Error("gone"));
  await assert.rejects(done, /gone/);
});

test("a hazard whose preparation fails is not checked", async () => {
  const broken = hazard({ prepare: () => Promise.reject(new Error("no space")), check: () => assert.fail() });
  const lacking = hazard(
    { prepare: () => Promise.reject(new CannotCheck("no sh")), check: () => assert.fail() },
    "clock",
  );
  const failed = await prepareAll([broken, lacking, hazard({}, "disk")], source, { scratch: "x" }, signal);
  const found = await checkAll([broken, lacking], lab, { unprepared: failed, signal, onResult: nothing });
  assert.deepEqual(
    found.map(({ id, outcome }) => [id, outcome]),
    [
      ["entropy", "fail"],
      ["clock", "not_applicable"],
    ],
  );
});

test("shared() names the two that have the same value", () => {
  const values = ["a", "b", "a"].map((value, at) => ({ name: `child ${at}`, value }));
  assert.equal(shared(values), "child 0 and child 2");
  assert.equal(shared(values.slice(0, 2)), undefined);
});
