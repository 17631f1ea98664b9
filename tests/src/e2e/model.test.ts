/**
 * Random operations against a model. Every sandbox and every snapshot holds what its history says: in memory,
 * in a synced journal, in a file and in a database, whatever happens to the daemon, the VMMs, the disk and the clock.
 *
 * FORKD_TEST_SEED repeats a run. `npm run soak -- --minutes N` runs it longer.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { hasSqlite } from "../support/model/ledger.ts";
import { runModel } from "../support/model/run-model.ts";

const seed = Number(process.env["FORKD_TEST_SEED"] ?? Date.now() % 1_000_000);
const seconds = 50;

test(`sandboxes and snapshots hold what their history says (seed ${seed})`, async (t) => {
  const counts = await runModel({ seed, seconds, lanes: 2, diskSize: "1500m", faultEveryMs: 5_000 });
  t.diagnostic(JSON.stringify({ sqlite: hasSqlite(), ...counts }));
  for (const fault of ["kill daemon", "fill disk", "set clock"]) assert.ok((counts[fault] ?? 0) > 0, fault);
});
