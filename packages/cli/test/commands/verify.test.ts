import assert from "node:assert/strict";
import { test } from "node:test";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

function hazard(id: string, outcome: string, remedy?: string): object {
  const words = {
    title: "t",
    policy: "No child repeats.",
    mechanism: "It is re-seeded.",
    detail: `found\u001b[2J ${id}`,
  };
  return { id, outcome, ...words, ...(remedy && { remedy }), checked_at_unix: 1, duration_ms: 2 };
}

function report(outcome: string, hazards: object[]): object {
  return {
    tag: "py",
    snapshot_id: "x",
    outcome,
    hazards,
    children: { forked: 2, pooled: 2, branched: 2 },
    kept: { sandboxes: [], snapshots: ["verify-1"] },
  };
}

function answering(outcome: string, hazards: object[]) {
  const lines = [
    { type: "progress", message: "forking", elapsed_ms: 1 },
    ...hazards.map((each) => ({ type: "hazard", hazard: each })),
    { type: "report", report: report(outcome, hazards) },
  ];
  return openFakeDaemon({ "POST /v1/snapshots/py/verify": { lines } });
}

test("verify prints each hazard with policy, mechanism and remedy, and exits 0 with a warning", async () => {
  const hazards = [hazard("entropy", "pass", "Do nothing."), hazard("secrets", "warn", "Remove it.")];
  await using daemon = await answering("warn", hazards);
  const { code, stdout } = await runCli(
    ["verify", "py", "-n", "8", "--only", "entropy,secrets", "--keep"],
    daemon,
  );
  assert.equal(code, 0);
  assert.match(stdout, /^HAZARD +RESULT +FOUND +POLICY +MECHANISM$/m);
  assert.match(stdout, /^entropy +pass +found \[2J entropy +No child repeats\. +It is re-seeded\.$/m);
  assert.match(stdout, /^secrets: Remove it\.$/m);
  assert.ok(!stdout.includes("Do nothing"));
  assert.match(
    stdout,
    /^1 passed, 1 warning, 0 failures, 0 not applicable; 2 children, 2 from the pool, 2 of a branch$/m,
  );
  const [asked] = daemon.asked;
  assert.deepEqual(JSON.parse(asked?.body ?? ""), { n: 8, only: ["entropy", "secrets"], keep: true });
});

test("verify exits 10 if a check fails, and --json prints the report", async () => {
  const hazards = [hazard("entropy", "fail"), hazard("network", "not_applicable")];
  await using daemon = await answering("fail", hazards);
  const { code, stdout } = await runCli(["verify", "py", "--json"], daemon);
  assert.equal(code, 10);
  assert.deepEqual(JSON.parse(stdout), report("fail", hazards));
});

test("verify refuses hazards that it does not know, and names the known ones", async () => {
  const { code, stderr } = await runCli(["verify", "py", "--only", "entropy,magic"]);
  assert.equal(code, 2);
  assert.match(stderr, /"magic" is not a hazard\. Hazards: entropy, prng/);
});

test("a fork of a snapshot that is not verified exits 10 with a remedy", async () => {
  const json = {
    error: 'Cannot fork snapshot "py"',
    code: "unsafe_snapshot",
    details: {},
    remedy: { action: "verify_snapshot", tag: "py", text: "POST …" },
  };
  await using daemon = await openFakeDaemon({ "POST /v1/sandboxes": { status: 409, json } });
  const { code, stderr } = await runCli(["fork", "py"], daemon);
  assert.equal(code, 10);
  assert.match(stderr, /Run `forkd verify py` to check it\./);
});
