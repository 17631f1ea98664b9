import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { idA, idB, openFakeDaemon, sandbox, snapshot } from "./fake-daemon.ts";
import { jsonLines, runCli } from "./run-cli.ts";

const twoSandboxes = { "GET /v1/sandboxes": { json: [sandbox(idA), sandbox(idB, 1)] } };

test("ls prints a table, ids with -q and the raw answer with --json", async () => {
  await using daemon = await openFakeDaemon(twoSandboxes);
  const { socket } = daemon;
  const table = await runCli(["ls"], { socket });
  assert.equal(table.code, 0, table.stderr);
  assert.match(table.stdout, new RegExp(`^ID +TAG .*\n${idA}  py +0 +running +12\\.3 .*job=42\n${idB}`));
  assert.equal((await runCli(["ps", "-q"], { socket })).stdout, `${idA}\n${idB}\n`);
  assert.deepEqual(
    JSON.parse((await runCli(["--json", "ls"], { socket })).stdout),
    twoSandboxes["GET /v1/sandboxes"].json,
  );
  assert.equal(daemon.asked[0]?.path, "/v1/sandboxes");
});

test("ls hides dead sandboxes without --all", async () => {
  const json = [
    { ...sandbox(idA), state: "paused" },
    { ...sandbox(idB), state: "dead", reason: "killed" },
  ];
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json } });
  const some = await runCli(["ls", "--tag", "py"], daemon);
  assert.match(some.stdout, new RegExp(`${idA}  py +0 +paused `));
  assert.ok(!some.stdout.includes(idB));
  assert.match((await runCli(["ls", "-a"], daemon)).stdout, new RegExp(`${idB}  py +\\d +dead .* killed\n`));
  assert.equal(daemon.asked[0]?.path, "/v1/sandboxes?tag=py");
});

test("ids can be abbreviated; the error for an ambiguous prefix names the matches", async () => {
  await using daemon = await openFakeDaemon({ ...twoSandboxes, [`DELETE /v1/sandboxes/${idA}`]: {} });
  const { socket } = daemon;
  assert.equal((await runCli(["rm", "aa"], { socket })).stdout, `${idA}\n`);
  const ambiguous = await runCli(["kill", "sb-a"], { socket });
  assert.equal(ambiguous.code, 2);
  assert.match(ambiguous.stderr, new RegExp(`ambiguous: ${idA}, ${idB}`));
  const absent = await runCli(["kill", "ff", "--json"], { socket });
  assert.equal(absent.code, 3);
  assert.equal((JSON.parse(absent.stdout) as [{ code: string }])[0].code, "sandbox_not_found");
});

test("kill shows each failure and exits with the code of the first", async () => {
  const gone = { status: 404, json: { error: "gone", code: "sandbox_not_found", details: {} } };
  const kills = { [`DELETE /v1/sandboxes/${idA}`]: gone, [`DELETE /v1/sandboxes/${idB}`]: {} };
  await using daemon = await openFakeDaemon({ ...twoSandboxes, ...kills });
  const { code, stdout, stderr } = await runCli(["kill", idA, idB], daemon);
  assert.deepEqual([code, stdout], [3, `${idB}\n`]);
  assert.match(stderr, new RegExp(`forkd: ${idA}: gone`));
});

test("kill --all makes one call and prints the killed ids", async () => {
  await using daemon = await openFakeDaemon({ "DELETE /v1/sandboxes": { json: { killed: [idA, idB] } } });
  const { code, stdout } = await runCli(["kill", "--all"], daemon);
  assert.deepEqual([code, stdout], [0, `${idA}\n${idB}\n`]);
});

test("fork prints the children and exits with the code of the first failure", async () => {
  const failure = { index: 1, error: "no room", code: "capacity_exhausted", details: {} };
  await using daemon = await openFakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA), failure] },
  });
  const args = [
    "spawn",
    "--tag",
    "py",
    "-n",
    "2",
    "-e",
    "A=b=c",
    "-l",
    "job=42",
    "--ttl",
    "10m",
    "--vary",
    "-",
  ];
  const { code, stdout, stderr } = await runCli(args, {
    socket: daemon.socket,
    stdin: '[{"values":1},{"env":{"X":"y"}}]',
  });
  assert.equal(code, 6);
  assert.match(stdout, new RegExp(idA));
  assert.match(stderr, /forkd: child 1: no room/);
  assert.deepEqual(JSON.parse(daemon.asked[0]?.body ?? ""), {
    snapshot_tag: "py",
    n: 2,
    env: { A: "b=c" },
    labels: { job: "42" },
    ttl_secs: 600,
    vary: [{ values: 1 }, { env: { X: "y" } }],
  });
});

test("an error of the daemon sets exit code, message and remedy", async () => {
  const body = { error: 'No snapshot has the tag "x"', code: "snapshot_not_found", details: {} };
  await using daemon = await openFakeDaemon({
    "GET /v1/snapshots/x/info": { status: 404, json: body },
    "GET /v1/sandboxes": { json: [] },
  });
  const { code, stderr } = await runCli(["snapshot-info", "x"], daemon);
  assert.equal(code, 3);
  assert.match(stderr, /^forkd: No snapshot has the tag "x"\n {2}Run `forkd images`[^\n]*\n$/);
});

test("an error has one remedy, in the words of the command line", async () => {
  const remedy = { action: "list_snapshots", text: "GET /v1/snapshots lists the snapshots." };
  const json = { error: 'Cannot find snapshot "pyhton"', code: "snapshot_not_found", details: {}, remedy };
  await using daemon = await openFakeDaemon({ "POST /v1/sandboxes": { status: 404, json } });
  const plain = await runCli(["fork", "pyhton"], daemon);
  assert.equal(plain.code, 3);
  const text = "Run `forkd images` to list snapshots.";
  assert.equal(plain.stderr, `forkd: Cannot find snapshot "pyhton"\n  ${text}\n`);
  const { stderr } = await runCli(["fork", "pyhton", "--json"], daemon);
  assert.deepEqual(JSON.parse(stderr), { ...json, remedy: { ...remedy, text } });
});

test("build sends the absolute path of the recipe and prints events with --json", async () => {
  const lines = [
    { type: "progress", step: "boot", message: "booting", elapsed_ms: 1 },
    { type: "step", step: "boot", message: "booting", duration_ms: 2345 },
    { type: "snapshot", snapshot: snapshot("mine") },
  ];
  await using daemon = await openFakeDaemon({ "POST /v1/snapshots": { status: 201, lines } });
  await mkdir(join(daemon.dir, "mine"));
  await writeFile(join(daemon.dir, "mine", "recipe.json"), "{}");
  const { code, stdout, stderr } = await runCli(["build", "./mine", "--json"], {
    socket: daemon.socket,
    cwd: daemon.dir,
  });
  assert.equal(code, 0, stderr);
  assert.deepEqual(jsonLines(stdout), lines);
  assert.deepEqual(JSON.parse(daemon.asked[0]?.body ?? ""), {
    tag: "mine",
    recipe: join(daemon.dir, "mine"),
    force: false,
  });
  const plain = await runCli(["build", "./mine"], { socket: daemon.socket, cwd: daemon.dir });
  assert.match(plain.stderr, /^ {2}boot +2\.3 s {2}booting$/m);
  await runCli(["build", "./mine/recipe.json", "--no-cache", "--force"], {
    socket: daemon.socket,
    cwd: daemon.dir,
  });
  assert.deepEqual(JSON.parse(daemon.asked[2]?.body ?? ""), {
    tag: "mine",
    recipe: join(daemon.dir, "mine"),
    force: true,
    no_cache: true,
  });
  assert.equal((await runCli(["build", "./absent"], { socket: daemon.socket, cwd: daemon.dir })).code, 3);
});

test("messages about arguments begin with a capital, name the reason and the right help", async () => {
  const cases = [
    [
      ["keys", "create", "y", "--expires", "soon"],
      /^forkd: Option .*\n {2}See `forkd keys create --help`\.\n$/,
    ],
    [["eval", idA, "--file", "/nofile"], /^forkd: Cannot read "\/nofile": no such file or directory\n$/],
    [["eval", idA], /^forkd: Give either CODE or --file\n/],
    [["cp", "a:/x", "b:/y"], /^forkd: One side must be on this host\. Copy in two steps\n/],
    [["ls", "--nope"], /^forkd: Unknown option '--nope'\n/],
  ] as const;
  for (const [args, message] of cases) assert.match((await runCli(args)).stderr, message);
});

test("cp copies files and trees in both directions", async () => {
  const entry = (name: string, type: string, extra = {}) => ({
    name,
    path: `/d/${name}`,
    type,
    size: 2,
    mode: "0640",
    mtime_unix: 1,
    uid: 0,
    gid: 0,
    ...extra,
  });
  const files = `/v1/sandboxes/${idA}/files`;
  await using daemon = await openFakeDaemon({
    [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
    [`GET ${files}/stat`]: ({ path }) => {
      if (path.includes("new"))
        return { status: 404, json: { error: "no", code: "file_not_found", details: {} } };
      return { json: entry("d", path.includes("one.txt") ? "file" : "directory") };
    },
    [`GET ${files}/list`]: ({ path }) => ({
      json: path.includes("evil")
        ? [entry("../x", "file")]
        : [entry("f", "file"), entry("l", "symlink", { target: "f" }), entry("p", "fifo")],
    }),
    [`GET ${files}`]: { bytes: "ok" },
    [`PUT ${files}`]: { json: entry("f", "file") },
    [`POST ${files}/mkdir`]: {},
  });
  const { socket, dir } = daemon;
  assert.equal((await runCli(["cp", `${idA}:/one.txt`, "-"], daemon)).stdout, "ok");
  const out = await runCli(["cp", `${idA}:/d`, join(dir, "got"), "--json"], { socket });
  assert.deepEqual(JSON.parse(out.stdout), {
    files: 1,
    directories: 1,
    bytes: 2,
    skipped: [{ path: "/d/p", reason: "it is a fifo" }],
  });
  assert.equal(await readFile(join(dir, "got", "l"), "utf8"), "ok");
  assert.equal((await runCli(["cp", `${idA}:/evil`, join(dir, "evil")], daemon)).code, 9);
  daemon.asked.length = 0;
  assert.equal((await runCli(["cp", join(dir, "got"), `${idA}:/new`], daemon)).code, 0);
  const puts = daemon.asked
    .filter(({ method }) => method === "PUT")
    .map(({ path, body }) => [new URLSearchParams(path.split("?")[1]).get("path"), body]);
  assert.deepEqual(puts.toSorted(), [
    ["/new/f", "ok"],
    ["/new/l", "ok"],
  ]);
});

test("ls names how many dead sandboxes it hides", async () => {
  const dead = { ...sandbox(idB, 1), state: "dead", reason: "VMM killed by SIGKILL" };
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json: [dead] } });
  const { stderr } = await runCli(["ls"], daemon);
  assert.match(stderr, /^No sandboxes\..*\n1 dead\. Run `forkd ls --all` to see why\.\n$/);
  assert.match((await runCli(["ls", "--all"], daemon)).stdout, / dead .* VMM killed by SIGKILL$/m);
});

test("version, down and doctor do not start the daemon", async () => {
  const version = await runCli(["version", "--json"]);
  assert.deepEqual(JSON.parse(version.stdout), { cli: "0.1.0", daemon: null });
  assert.deepEqual(await runCli(["down"]), { code: 0, stdout: "", stderr: "The daemon is not running.\n" });
  const doctor = JSON.parse((await runCli(["doctor", "--json"])).stdout) as { checks: { name: string }[] };
  assert.ok(doctor.checks.some(({ name }) => name === "kvm"));
});

test("the error for a daemon that cannot start has the reason", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  t.after(() => rm(dir, { recursive: true }));
  const env = { FORKD_SOCKET: "", FORKD_DATA_DIR: dir, FORKD_RUNTIME_DIR: dir, FORKD_ACCELERATOR: "warp" };
  const { code, stderr } = await runCli(["ls", "--quiet"], { env });
  assert.equal(code, 2);
  assert.match(
    stderr,
    /^forkd: Invalid settings: accelerator .*\n {2}The daemon's log is .*daemon\.log\.\n$/,
  );
});

test("a daemon that FORKD_URL names is not started", async () => {
  const { code, stderr } = await runCli(["ls"], {
    env: { FORKD_SOCKET: "", FORKD_URL: "http://127.0.0.1:1" },
  });
  assert.equal(code, 8);
  assert.match(stderr, /^forkd: Cannot reach the daemon/);
  assert.match(stderr, /\n {2}Check FORKD_URL, and that the daemon listens there\.\n$/);
});

test("ls exits without a message when the reader closes stdout", async () => {
  const many = Array.from({ length: 5000 }, (_, index) => sandbox(idA, index));
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json: many } });
  const { code, stderr } = await runCli(["ls"], {
    socket: daemon.socket,
    onStdout: (_, child) => child.stdout?.destroy(),
  });
  assert.deepEqual([code, stderr], [0, ""]);
});

test("messages that quote a guest contain no control characters", async () => {
  const text = "guest: Kernel panic \u001b]52;c;ZXZpbA==\u0007\u009b2J\r\u001b[31m";
  const json = { error: `Cannot use it: it is dead (${text})`, code: "sandbox_dead", details: { log: text } };
  await using daemon = await openFakeDaemon({
    ...twoSandboxes,
    [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
    [`POST /v1/sandboxes/${idA}/exec`]: { status: 409, json },
    [`POST /v1/sandboxes/${idA}/pause`]: { status: 409, json },
    "POST /v1/sandboxes": { json: [sandbox(idA), { ...json, index: 1 }] },
  });
  for (const args of [
    ["exec", idA, "--", "true"],
    ["pause", idA, idB],
    ["fork", "--tag", "py", "-n", "2"],
  ]) {
    const { stderr } = await runCli(args, daemon);
    assert.match(stderr, /Kernel panic {2}\]52;c;ZXZpbA==/, args.join(" "));
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(stderr, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/, args.join(" "));
  }
});
