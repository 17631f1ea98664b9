import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, idB, openFakeDaemon, sandbox, snapshot } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const workspace = {
  id: idA,
  name: "dev",
  source_snapshot_tag: "py",
  status: "running",
  live_sandbox_id: idA,
  created_at_unix: 1_700_000_000,
  last_active_unix: 1_700_000_000,
};

test("compact copies and prints the new tag", async () => {
  await using daemon = await openFakeDaemon({ "POST /v1/snapshots/old/compact": { json: snapshot("flat") } });
  const plain = await runCli(["compact", "--from", "old", "--to", "flat"], daemon);
  assert.deepEqual(plain, {
    code: 0,
    stdout: "flat\n",
    stderr: "Copied old to flat, which has no parent.\n",
  });
  assert.equal(daemon.asked[0]?.body, '{"to":"flat"}');
  const json = await runCli(["snapshot-compact", "--from", "old", "--to", "flat", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), snapshot("flat"));
});

test("gc names unused images with --images, and otherwise says what they take", async () => {
  const image = { kind: "image", name: "rootfs/0123456789ab", bytes: 2048, source: "/home/me/ds" };
  await using daemon = await openFakeDaemon({
    "POST /v1/gc": ({ body }) => {
      const { images } = JSON.parse(body) as { images?: boolean };
      return images
        ? { json: { removed: [image], freed_bytes: 2048, dry_run: false } }
        : { json: { removed: [], freed_bytes: 0, kept_image_bytes: 2048, dry_run: false } };
    },
  });
  const kept = await runCli(["gc"], daemon);
  assert.match(
    kept.stderr,
    /^Nothing to remove\.\nUnused images take 2\.0 KiB\. `forkd gc --images` removes/,
  );
  const removed = await runCli(["gc", "--images"], daemon);
  assert.match(removed.stdout, /image +rootfs\/0123456789ab \(\/home\/me\/ds\) +2\.0 KiB/);
  assert.equal(removed.stderr, "Freed 2.0 KiB.\n");
});

test("gc lists the removed files and the sum", async () => {
  const removed = [{ kind: "memory", name: "fan", bytes: 2048 }];
  await using daemon = await openFakeDaemon({
    "POST /v1/gc": ({ body }) => ({
      json: { removed, freed_bytes: 2048, dry_run: body.includes("true") },
    }),
  });
  assert.deepEqual(await runCli(["gc"], daemon), {
    code: 0,
    stdout: "KIND    NAME    BYTES\nmemory  fan   2.0 KiB\n",
    stderr: "Freed 2.0 KiB.\n",
  });
  assert.equal((await runCli(["gc", "-n"], daemon)).stderr, "Would free 2.0 KiB.\n");
  const json = await runCli(["gc", "--dry-run", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), { removed, freed_bytes: 2048, dry_run: true });
  assert.deepEqual(
    daemon.asked.map(({ body }) => body),
    ['{"dry_run":false}', '{"dry_run":true}', '{"dry_run":true}'],
  );
});

test("tree uses box characters if the locale is UTF-8", async () => {
  const tree = {
    snapshots: [{ tag: "py", status: "ready", created_at_unix: 1, physical_bytes: 1 }],
    sandboxes: [{ id: idA, state: "running", snapshot_tag: "py", created_at_unix: 1 }],
  };
  await using daemon = await openFakeDaemon({ "GET /v1/tree": { json: tree } });
  const { socket } = daemon;
  assert.match((await runCli(["tree"], { socket, env: { LANG: "C.UTF-8" } })).stdout, /^py .*\n└── sb-aa/);
  assert.match((await runCli(["tree"], { socket, env: { LANG: "C" } })).stdout, /^py .*\n`-- sb-aa/);
  assert.deepEqual(JSON.parse((await runCli(["tree", "--json"], { socket })).stdout), tree);
});

test("workspace creates, lists, suspends, resumes and deletes", async () => {
  const suspended = { ...workspace, status: "suspended" };
  await using daemon = await openFakeDaemon({
    "POST /v1/workspaces": { status: 201, json: workspace },
    "GET /v1/workspaces": { json: [workspace] },
    "POST /v1/workspaces/dev/suspend": { json: suspended },
    "POST /v1/workspaces/dev/resume": { json: workspace },
    "DELETE /v1/workspaces/dev": {},
  });
  const run = (...args: string[]) => runCli(["workspace", ...args], daemon);
  const created = await run("create", "dev", "--snapshot", "py", "-e", "A=1", "--label", "k=v");
  assert.deepEqual(created, {
    code: 0,
    stdout: "dev\n",
    stderr: `Workspace dev is running; its sandbox is ${idA}.\n`,
  });
  assert.deepEqual(JSON.parse(daemon.asked[0]?.body ?? ""), {
    name: "dev",
    snapshot_tag: "py",
    env: { A: "1" },
    labels: { k: "v" },
  });
  assert.match((await run("ls")).stdout, new RegExp(`^NAME +STATUS .*\ndev +running +py +${idA} `));
  assert.equal((await run("ls", "-q")).stdout, "dev\n");
  assert.deepEqual(JSON.parse((await run("ls", "--json")).stdout), [workspace]);
  assert.deepEqual(JSON.parse((await run("suspend", "dev", "--json")).stdout), suspended);
  assert.deepEqual(JSON.parse((await run("--json", "resume", "dev")).stdout), workspace);
  assert.equal((await run("delete", "dev")).stdout, "dev\n");
  assert.deepEqual(
    daemon.asked.slice(-3).map(({ method, path, body }) => `${method} ${path} ${body}`),
    ["POST /v1/workspaces/dev/suspend {}", "POST /v1/workspaces/dev/resume {}", "DELETE /v1/workspaces/dev "],
  );
});

test("workspace resume says what was lost with the machine", async () => {
  for (const [since, expected] of [
    ["created", /^forkd: Workspace dev starts again from py: .* ever suspended \(no power\)\n/],
    ["suspended", /^forkd: Workspace dev is as it was when it was last suspended: .* \(no power\)\n/],
  ] as const) {
    const json = { ...workspace, lost: { since, reason: "no power" } };
    await using daemon = await openFakeDaemon({ "POST /v1/workspaces/dev/resume": { json } });
    const { code, stdout, stderr } = await runCli(["workspace", "resume", "dev"], daemon);
    assert.deepEqual([code, stdout], [0, "dev\n"]);
    assert.match(stderr, expected);
  }
});

test("a missing workspace exits 3 with a remedy", async () => {
  const body = { error: "no dev", code: "workspace_not_found", details: {} };
  await using daemon = await openFakeDaemon({
    "POST /v1/workspaces/dev/resume": { status: 404, json: body },
  });
  const { code, stderr } = await runCli(["workspace", "resume", "dev"], daemon);
  assert.equal(code, 3);
  assert.match(stderr, /^forkd: no dev\n {2}Run `forkd workspace ls`/);
});

test("workspace without a subcommand shows its help and exits 2; --help of a subcommand exits 0", async () => {
  const { code, stdout, stderr } = await runCli(["workspace"]);
  assert.deepEqual([code, stdout], [2, ""]);
  assert.match(stderr, /^Usage: forkd workspace /);
  const help = await runCli(["workspace", "create", "--help"]);
  assert.equal(help.code, 0);
  for (const part of ["--snapshot", "--json", "Examples:"]) assert.ok(help.stdout.includes(part), part);
  const unknown = await runCli(["workspace", "susspend", "dev"]);
  assert.equal(unknown.code, 2);
  assert.match(unknown.stderr, /Unknown command 'susspend'.*\n?.*Did you mean suspend/);
});

test("verbs accept the name of a workspace in place of an id", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [{ ...sandbox(idA), workspace: "dev" }] },
    [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
    [`GET /v1/sandboxes/${idA}/logs`]: { bytes: "console" },
    [`GET /v1/sandboxes/${idA}/files/stat`]: { json: { type: "file" } },
    [`GET /v1/sandboxes/${idA}/files`]: { bytes: "content" },
    [`DELETE /v1/sandboxes/${idA}`]: {},
  });
  assert.equal((await runCli(["logs", "dev"], daemon)).stdout, "console");
  assert.equal((await runCli(["cp", "dev:/x", "-"], daemon)).stdout, "content");
  assert.equal((await runCli(["kill", "dev"], daemon)).stdout, `${idA}\n`);
  const absent = await runCli(["kill", "prod"], daemon);
  assert.equal(absent.code, 3);
  assert.match(absent.stderr, /no workspace has that name/);
});

test("rmi sends --cascade and --force, and removes in the given order", async () => {
  await using daemon = await openFakeDaemon({
    "DELETE /v1/snapshots/a": {},
    "DELETE /v1/snapshots/b": {},
  });
  assert.equal((await runCli(["rmi", "--cascade", "b", "a"], daemon)).stdout, "b\na\n");
  assert.equal((await runCli(["rmi", "--force", "a"], daemon)).code, 0);
  assert.deepEqual(
    daemon.asked.map(({ path }) => path),
    ["/v1/snapshots/b?cascade=true", "/v1/snapshots/a?cascade=true", "/v1/snapshots/a?force=true"],
  );
});

test("rmi lists everything that it removed, and --dry-run what it would remove", async () => {
  const answer = (dry_run: boolean) => ({
    json: { removed: [{ tag: "cb" }, { tag: "ca" }], freed_bytes: 5 * 1024 * 1024, dry_run },
  });
  await using daemon = await openFakeDaemon({
    "DELETE /v1/snapshots/ca": ({ path }) => answer(path.includes("dry_run=true")),
  });
  const removed = await runCli(["rmi", "--cascade", "ca"], daemon);
  assert.deepEqual([removed.stdout, removed.stderr], ["cb\nca\n", "Freed 5.0 MiB.\n"]);
  const would = await runCli(["rmi", "--cascade", "--dry-run", "ca"], daemon);
  assert.deepEqual([would.stdout, would.stderr], ["cb\nca\n", "Would free 5.0 MiB.\n"]);
  assert.equal(daemon.asked.at(-1)?.path, "/v1/snapshots/ca?cascade=true&dry_run=true");
  const json = await runCli(["rmi", "--cascade", "ca", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), [
    { tag: "ca", removed: true, snapshots: ["cb", "ca"], freed_bytes: 5 * 1024 * 1024 },
  ]);
  const dryJson = await runCli(["rmi", "-n", "ca", "--json"], daemon);
  assert.match(dryJson.stdout, /"would_be_removed": true/);
});

test("kill, pause and resume do what they can and report each outcome", async () => {
  const verbs = [
    ["kill", "killed", `DELETE /v1/sandboxes/${idA}`],
    ["pause", "paused", `POST /v1/sandboxes/${idA}/pause`],
    ["resume", "resumed", `POST /v1/sandboxes/${idA}/resume`],
  ] as const;
  for (const [verb, done, route] of verbs) {
    await using daemon = await openFakeDaemon({
      "GET /v1/sandboxes": { json: [sandbox(idA)] },
      [route]: { json: sandbox(idA) },
    });
    const text = await runCli([verb, "nosuch", "aa"], daemon);
    assert.equal(text.code, 3, verb);
    assert.equal(text.stdout, `${idA}\n`);
    assert.equal(
      text.stderr,
      'forkd: No sandbox has an id that starts with "nosuch", and no workspace has that name\n' +
        "  Run `forkd ls --all` to list sandboxes.\n",
    );
    const json = await runCli([verb, "aa", "nosuch", "--json"], daemon);
    assert.equal(json.code, 3, verb);
    const [first, second] = JSON.parse(json.stdout) as Record<string, unknown>[];
    assert.deepEqual(first, { id: idA, [done]: true });
    assert.deepEqual(
      [second?.["id"], second?.[done], second?.["code"]],
      ["nosuch", false, "sandbox_not_found"],
    );
  }
});

test("verbs for several sandboxes name each once, and the same remedy once", async () => {
  const dead = (id: string) => ({
    status: 409,
    json: {
      error: `Cannot use ${id}: it is dead`,
      code: "sandbox_dead",
      details: {},
      remedy: { action: "fork_another", tag: "py", text: "" },
    },
  });
  await using daemon = await openFakeDaemon({
    [`POST /v1/sandboxes/${idA}/pause`]: dead(idA),
    [`POST /v1/sandboxes/${idB}/pause`]: dead(idB),
  });
  const { code, stderr } = await runCli(["pause", idA, idB], daemon);
  assert.equal(code, 4);
  assert.equal(
    stderr,
    `forkd: Cannot use ${idA}: it is dead\n  Run \`forkd fork py\` to fork a new sandbox.\n` +
      `forkd: Cannot use ${idB}: it is dead\n`,
  );
});

test("ls shows reasons in the last column, and no such column without reasons", async () => {
  const dead = {
    ...sandbox(idB),
    state: "dead",
    reason: "out of memory: limit 150 MiB (guest has 1024 MiB)",
  };
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json: [sandbox(idA), dead] } });
  const [head, first, second] = (await runCli(["ls", "--all"], daemon)).stdout.split("\n");
  assert.match(head ?? "", / STATE {4}READY MS .* LABELS +REASON$/);
  assert.match(first ?? "", / running +12\.3 .* -$/);
  assert.match(second ?? "", / dead +12\.3 .* out of memory: limit 150 MiB \(guest has 1024 MiB\)$/);
  assert.doesNotMatch((await runCli(["ls"], daemon)).stdout, /REASON/);
});

test("images and info show what a snapshot takes and what removing it would free", async () => {
  const sizes = { total_bytes: 1_825_361_100, own_bytes: 376 * 1024 * 1024 };
  await using daemon = await openFakeDaemon({
    "GET /v1/snapshots": { json: [{ ...snapshot("ds"), ...sizes }, snapshot("old")] },
    "GET /v1/snapshots/ds/info": {
      json: {
        ...snapshot("ds"),
        ...sizes,
        id: "sha256:abc",
        ancestors: [],
        dependents: [],
        sandboxes: [],
        memory_logical_bytes: 1024,
        memory_physical_bytes: 1024,
        vmstate_bytes: 1,
        disk_bytes: 1,
        chain_depth: 0,
        layer_bytes: 0,
        flat_cache_bytes: 0,
        rootfs_bytes: 4 * 1024 ** 3,
        rootfs_physical_bytes: 1024 ** 3,
      },
    },
  });
  const [head, ds, old] = (await runCli(["images"], daemon)).stdout.split("\n");
  assert.match(head ?? "", / SIZE +OWN +LANGUAGES /);
  assert.match(ds ?? "", / 1\.7 GiB +376 MiB /);
  assert.match(old ?? "", / - +1\.0 KiB /);
  const { stdout } = await runCli(["info", "ds"], daemon);
  assert.match(stdout, /^rootfs +1\.0 GiB of 4\.0 GiB$/m);
  assert.match(stdout, /^size +1\.7 GiB$/m);
  assert.match(stdout, /^own +376 MiB, which removing it would free$/m);
});

test("images shows parents and the reason why a snapshot is not ready", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/snapshots": {
      json: [
        snapshot("base"),
        { ...snapshot("layer"), parent_tag: "base", status: "writing", bootable: false },
        { ...snapshot("bad"), status: "failed", bootable: false, warning: "no space" },
        { ...snapshot("other"), bootable: false, warning: "made with kvm" },
      ],
    },
  });
  const lines = (await runCli(["images"], daemon)).stdout.split("\n");
  assert.match(lines[0] ?? "", /^TAG +PARENT .* STATUS$/);
  assert.match(lines[1] ?? "", /^bad +- .* failed \(no space\)$/);
  assert.match(lines[2] ?? "", /^base +- .* ready$/);
  assert.match(lines[3] ?? "", /^layer +base .* writing$/);
  assert.match(lines[4] ?? "", /^other +- .* made with kvm$/);
});

test("info shows the place of a snapshot in its chain", async () => {
  const detail = {
    ...snapshot("step-2"),
    parent_tag: "step-1",
    branched_from: idA,
    mode: "live",
    pause_ms: 12.34,
    memory_logical_bytes: 1024,
    memory_physical_bytes: 1024,
    vmstate_bytes: 1,
    disk_bytes: 1,
    rootfs_bytes: 1,
    id: "sha256:abc",
    chain_depth: 2,
    ancestors: ["step-1", "base"],
    dependents: ["step-3"],
    layer_bytes: 2048,
    flat_cache_bytes: 0,
    sandboxes: [],
    manifest: {},
  };
  await using daemon = await openFakeDaemon({ "GET /v1/snapshots/step-2/info": { json: detail } });
  const { stdout } = await runCli(["info", "step-2"], daemon);
  const facts = new Map(
    stdout
      .trim()
      .split("\n")
      .map((line) => [line.slice(0, line.indexOf("  ")), line.slice(line.indexOf("  ")).trim()] as const),
  );
  for (const [name, value] of Object.entries({
    id: "sha256:abc",
    parent: "step-1",
    depth: "2",
    ancestors: "step-1 base",
    "branched from": idA,
    mode: "live",
    pause: "12.3 ms",
    "memory layer": "2.0 KiB",
    "flat cache": "none",
    dependents: "step-3",
  }))
    assert.equal(facts.get(name), value, name);
});

test("completion completes subcommands, workspaces and values of options", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [{ ...sandbox(idA), workspace: "dev" }] },
    "GET /v1/snapshots": { json: [snapshot("py")] },
    "GET /v1/workspaces": { json: [workspace] },
  });
  const complete = async (...words: string[]) =>
    (await runCli(["__complete", "--", ...words], daemon)).stdout.split("\n").filter(Boolean);
  assert.deepEqual(await complete("workspace", ""), ["create", "ls", "suspend", "resume", "delete"]);
  assert.deepEqual(await complete("workspace", "resume", ""), ["dev"]);
  assert.deepEqual(await complete("workspace", "create", ""), []);
  assert.deepEqual(await complete("workspace", "create", "--sn"), ["--snapshot"]);
  assert.deepEqual(await complete("workspace", "create", "x", "--snapshot", ""), ["py"]);
  assert.deepEqual(await complete("branch", ""), [idA, "dev"]);
  assert.deepEqual(await complete("branch", "dev", "--mo"), ["--mode"]);
  assert.deepEqual(await complete("rewind", "dev", "--to", ""), ["py"]);
  assert.deepEqual(await complete("snapshot", "--from-sandbox", "d"), ["dev"]);
});
