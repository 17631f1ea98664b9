import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const list = { "GET /v1/sandboxes": { json: [sandbox(idA)] } };
const limitFlags = [
  ...["--memory-limit-mib", "128", "--cpu-percent", "50", "--pids", "64"],
  ...["--io-write-mbps", "5", "--disk-limit-mib", "100", "--best-effort"],
  ...["--idle-timeout", "10m", "--on-timeout", "pause", "--auto-resume"],
];
const limitFields = {
  limits: {
    memory_mib: 128,
    cpu_percent: 50,
    pids: 64,
    io_write_bps: 5_000_000,
    disk_mib: 100,
    best_effort: true,
  },
  idle_timeout_secs: 600,
  on_timeout: "pause",
  auto_resume: true,
};

test("fork and workspace create send limits and timeouts", async () => {
  const workspace = {
    id: idA,
    name: "dev",
    source_snapshot_tag: "py",
    status: "running",
    created_at_unix: 1,
    last_active_unix: 1,
  };
  await using daemon = await openFakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
    "POST /v1/workspaces": { status: 201, json: workspace },
  });
  const forked = await runCli(["fork", "--tag", "py", ...limitFlags], daemon);
  assert.equal(forked.code, 0, forked.stderr);
  const made = await runCli(["workspace", "create", "dev", "--snapshot", "py", ...limitFlags], daemon);
  assert.equal(made.code, 0, made.stderr);
  const [first, second] = daemon.asked.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
  assert.deepEqual(first, { snapshot_tag: "py", n: 1, ...limitFields });
  assert.deepEqual(second, { name: "dev", snapshot_tag: "py", ...limitFields });
});

test("branch accepts limits only for children", async () => {
  await using daemon = await openFakeDaemon(list);
  const { code, stderr } = await runCli(["branch", idA, "--cpu-percent", "50"], daemon);
  assert.equal(code, 2);
  assert.match(stderr, /limits and timeouts are for children. Give -n too/);
});

test("fork refuses invalid limits before it calls the daemon", async () => {
  await using daemon = await openFakeDaemon({});
  for (const flags of [
    ["--memory-limit-mib", "8"],
    ["--cpu-percent", "0"],
    ["--pids", "x"],
    ["--on-timeout", "explode"],
  ]) {
    const { code, stderr } = await runCli(["fork", "py", ...flags], daemon);
    assert.equal(code, 2, flags.join(" "));
    assert.match(stderr, new RegExp(flags[0] ?? ""));
  }
  assert.deepEqual(daemon.asked, []);
});

test("ls --wide shows timeouts and limits, and marks those that are not enforced", async () => {
  const json = [
    {
      ...sandbox(idA),
      owner: "ci",
      limits: { memory_mib: 128, net_bps: 5000 },
      limits_not_enforced: [{ limit: "net_bps", reason: "no" }],
      idle_timeout_secs: 600,
      on_timeout: "pause",
      auto_resume: true,
    },
  ];
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json } });
  const { stdout } = await runCli(["ls", "--wide"], daemon);
  assert.match(stdout, /OWNER +LIMITS +TIMEOUTS/);
  assert.match(stdout, /ci +memory_mib=128 net_bps=5000! +10m pause auto-resume/);
});

test("timeouts sends only the given options", async () => {
  const path = `POST /v1/sandboxes/${idA}/timeouts`;
  await using daemon = await openFakeDaemon({ ...list, [path]: { json: sandbox(idA) } });
  const bodyOf = async (...flags: string[]) => {
    const { code, stderr } = await runCli(["timeouts", idA, ...flags], daemon);
    assert.equal(code, 0, stderr);
    return JSON.parse(daemon.asked.at(-1)?.body ?? "") as unknown;
  };
  assert.deepEqual(await bodyOf("--ttl", "1h", "--no-auto-resume"), { ttl_secs: 3600, auto_resume: false });
  assert.deepEqual(await bodyOf("--ttl", "none", "--idle", "5m"), { ttl_secs: null, idle_timeout_secs: 300 });
  assert.deepEqual(await bodyOf("--on-timeout", "pause", "--auto-resume"), {
    on_timeout: "pause",
    auto_resume: true,
  });
  const nothing = await runCli(["timeouts", idA], daemon);
  assert.equal(nothing.code, 2);
  assert.match(nothing.stderr, /Give at least one of/);
});

test("gc sends its filters of branches and lists them with their bytes", async () => {
  const removed = [{ kind: "snapshot", name: "old", bytes: 5 << 20 }];
  await using daemon = await openFakeDaemon({
    "POST /v1/gc": { json: { removed, freed_bytes: 5 << 20, dry_run: true } },
  });
  const flags = ["--branches", "--older-than", "7d", "--keep-last", "3", "--dry-run"];
  const { stdout, stderr, code } = await runCli(["gc", ...flags], daemon);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /snapshot +old +5/);
  assert.match(stderr, /Would free 5/);
  assert.deepEqual(JSON.parse(daemon.asked[0]?.body ?? ""), {
    dry_run: true,
    branches: true,
    older_than_secs: 604_800,
    keep_last: 3,
  });
});
