import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const base = `/v1/sandboxes/${idA}`;
const get = { [`GET ${base}`]: { json: sandbox(idA) } };
const list = [
  { name: "default", language: "python" },
  { name: "job-7", language: "python" },
  { name: "default", language: "node" },
];

test("interrupt sends the language and the context", async () => {
  await using daemon = await openFakeDaemon({ ...get, [`POST ${base}/interrupt`]: { status: 204 } });
  const plain = await runCli(["interrupt", idA], daemon);
  assert.deepEqual(plain, { code: 0, stdout: `${idA}\n`, stderr: "" });
  const json = await runCli(["interrupt", idA, "--context", "job-7", "--language", "node", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), { id: idA, interrupted: true });
  const bodies = daemon.asked.filter(({ method }) => method === "POST").map(({ body }) => body);
  assert.deepEqual(bodies, ["{}", '{"language":"node","context":"job-7"}']);
});

test("contexts lists the contexts, and drops those that --drop names", async () => {
  const gone = { status: 409, json: { error: "no such context", code: "guest_refused", details: {} } };
  await using daemon = await openFakeDaemon({
    ...get,
    [`GET ${base}/contexts`]: { json: list },
    [`DELETE ${base}/contexts/job-7`]: { status: 204 },
    [`DELETE ${base}/contexts/absent`]: gone,
  });
  const table = await runCli(["contexts", idA], daemon);
  assert.match(table.stdout, /^CONTEXT +LANGUAGE\ndefault +python\njob-7 +python\ndefault +node\n$/);
  assert.equal(
    (await runCli(["contexts", idA, "-q", "--language", "python"], daemon)).stdout,
    "default\njob-7\n",
  );
  assert.deepEqual(JSON.parse((await runCli(["contexts", idA, "--json"], daemon)).stdout), list);
  const dropped = await runCli(["contexts", idA, "--drop", "absent", "--drop", "job-7"], daemon);
  assert.deepEqual([dropped.code, dropped.stdout], [9, "job-7\n"]);
  assert.match(dropped.stderr, /^forkd: absent: no such context\n/);
});
