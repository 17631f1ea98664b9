import assert from "node:assert/strict";
import { test } from "node:test";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const shelf = { tag: "py", ready: 1, making: 1, wanted: 2, is_set: true, child_mib: 30 };
const pool = { budget_mib: 100, used_mib: 30, snapshots: [shelf] };

test("pool prints ready children by snapshot, with --json the answer, with -q tags", async () => {
  await using daemon = await openFakeDaemon({ "GET /v1/pool": { json: pool } });
  const table = await runCli(["pool"], daemon);
  assert.match(table.stdout, /^SNAPSHOT +READY +MAKING +WANTED +SIZE +MIB EACH\npy +1 +1 +2 +set +30\n$/);
  assert.match(table.stderr, /use about 30 of 100 MiB/);
  assert.deepEqual(JSON.parse((await runCli(["pool", "--json"], daemon)).stdout), pool);
  assert.equal((await runCli(["pool", "-q"], daemon)).stdout, "py\n");
});

test("pool set and unset send the number, and a number out of range is refused before", async () => {
  await using daemon = await openFakeDaemon({ "POST /v1/pool/py": { json: pool } });
  await runCli(["pool", "set", "py", "--ready", "2"], daemon);
  await runCli(["pool", "unset", "py"], daemon);
  assert.deepEqual(
    daemon.asked.map(({ body }) => body),
    ['{"ready":2}', '{"ready":null}'],
  );
  const wrong = await runCli(["pool", "set", "py", "--ready", "1001"], daemon);
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /--ready/);
  const missing = await runCli(["pool", "set", "py"], daemon);
  assert.equal(missing.code, 2);
  assert.equal(daemon.asked.length, 2);
});

test("pool says how to switch it on", async () => {
  const off = { budget_mib: 0, used_mib: 0, snapshots: [] };
  await using daemon = await openFakeDaemon({ "GET /v1/pool": { json: off } });
  assert.match((await runCli(["pool"], daemon)).stderr, /The pool is off\. Run `forkd config set/);
});
