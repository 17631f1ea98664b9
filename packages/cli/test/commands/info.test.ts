import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, idB, openFakeDaemon, sandbox, snapshot } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const detail = (tag: string) => ({
  ...snapshot(tag),
  id: "x",
  chain_depth: 0,
  ancestors: ["base"],
  dependents: [],
  sandboxes: [],
  memory_physical_bytes: 1,
  memory_logical_bytes: 2,
  layer_bytes: 0,
  flat_cache_bytes: 0,
  vmstate_bytes: 1,
  disk_bytes: 1,
  rootfs_bytes: 1,
});
const command = {
  exec_id: 7,
  pid: 70,
  state: "running",
  command: "sleep",
  args: ["sleep", "60"],
  stdout_bytes: 0,
  stderr_bytes: 0,
};
const usage = {
  id: idA,
  snapshot_tag: "py",
  state: "running",
  uptime_secs: 5,
  cpu_seconds: 1.25,
  private_bytes: 1024,
  shared_bytes: 2048,
  pss_bytes: 1536,
  disk_bytes: 4096,
  sampled_at_unix: 1,
};
const absent = { status: 404, json: { error: "No snapshot", code: "snapshot_not_found", details: {} } };
const workspace = {
  id: idA,
  name: "dev",
  source_snapshot_tag: "py",
  status: "running",
  created_at_unix: 1,
  last_active_unix: 2,
};
const own = { ...sandbox(idA, 3), workspace: "dev", reason: "note\u001b[2J" };
const answers = {
  "GET /v1/sandboxes": { json: [own, { ...sandbox(idB), state: "paused" }] },
  [`GET /v1/sandboxes/${idA}`]: { json: own },
  [`GET /v1/sandboxes/${idB}`]: { json: { ...sandbox(idB), state: "paused" } },
  [`GET /v1/sandboxes/${idA}/execs`]: { json: [command] },
  "GET /v1/stats": { json: { sampled_at_unix: 1, sandboxes: [usage] } },
  "GET /v1/snapshots": { json: [snapshot("step-1")] },
  "GET /v1/snapshots/py/info": { json: detail("py") },
  "GET /v1/snapshots/dev/info": { json: detail("dev") },
  "GET /v1/snapshots/aa/info": absent,
  "GET /v1/snapshots/ff/info": absent,
  "GET /v1/workspaces": { json: [workspace] },
  "GET /v1/workspaces/dev": { json: workspace },
};

test("info shows a sandbox with its use, its lineage and its commands", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { code, stdout, stderr } = await runCli(["info", "aa"], daemon);
  assert.deepEqual([code, stderr], [0, ""]);
  for (const line of [
    `id            ${idA}`,
    "workspace     dev, running",
    "labels        job=42",
    "state         running",
    "snapshot      py",
    "index         3",
    "ancestors     base",
    "branches      step-1",
    "expires       never",
    "limits        none",
    "cpu time      1.3 s",
    "memory        1.0 KiB private, 2.0 KiB shared, 1.5 KiB proportional",
    "disk          4.0 KiB",
  ])
    assert.ok(stdout.includes(`${line}\n`), `${line} in\n${stdout}`);
  assert.match(stdout, /\nreason +note \[2J\n/);
  assert.match(stdout, /\n\nCOMMAND ID [^]*\n7 +running [^]*sleep 60\n$/);
  assert.ok(
    daemon.asked.some(
      ({ path }) => path.startsWith("/v1/snapshots?") && path.includes(`branched_from=${idA}`),
    ),
  );
});

test("info --json has the sandbox and everything around it", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { stdout } = await runCli(["info", idA, "--json"], daemon);
  assert.deepEqual(JSON.parse(stdout), {
    ...own,
    workspace_info: workspace,
    stats: usage,
    ancestors: ["base"],
    branches: ["step-1"],
    commands: [command],
  });
});

test("info of a paused sandbox does not resume it", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { code, stdout } = await runCli(["info", idB, "--json"], daemon);
  assert.equal(code, 0);
  assert.equal((JSON.parse(stdout) as { commands: null }).commands, null);
  assert.ok(!daemon.asked.some(({ path }) => path.endsWith("/execs")));
});

test("info of a name that is a tag and a workspace shows the snapshot; --type chooses", async () => {
  await using daemon = await openFakeDaemon(answers);
  const tag = await runCli(["info", "dev"], daemon);
  assert.match(tag.stdout, /^tag +dev\n/);
  assert.match(tag.stderr, /^A workspace has that name too\. Run `forkd info dev --type workspace`/);
  const named = await runCli(["info", "dev", "--type", "workspace"], daemon);
  assert.match(named.stdout, new RegExp(`^id +${idA}\n`));
  assert.match((await runCli(["info", "dev", "--type", "sandbox"], daemon)).stdout, /^id +sb-aa/);
});

test("info of an unknown name fails with the error of the snapshot", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { code, stderr } = await runCli(["info", "ff"], daemon);
  assert.equal(code, 3);
  assert.match(stderr, /^forkd: No snapshot\n {2}Run `forkd images`/);
  assert.equal((await runCli(["info", "aa", "--verify"], daemon)).code, 2);
});
