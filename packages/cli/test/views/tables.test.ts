/** The tables of the verbs on terminals of different widths. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, idB, openFakeDaemon, sandbox, snapshot } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";
import { runOnTerminal } from "../run-terminal.ts";

const created_at_unix = Date.now() / 1000 - 3600;
const children = [
  { ...sandbox(idA), created_at_unix, pid: 123_456, labels: { job: "42", team: "search-and-rescue" } },
  {
    ...sandbox(idB, 1),
    created_at_unix,
    pid: 123_457,
    workspace: "dev",
    expires_at_unix: created_at_unix + 9999,
  },
];

test("ls, images and top fit the terminal and show short ids", async () => {
  const tags = ["a", "a-rather-long-name-of-a-snapshot"].map((tag) => ({
    ...snapshot(tag),
    parent_tag: "another-rather-long-name",
    languages: ["python", "node"],
  }));
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: children },
    "GET /v1/snapshots": { json: tags },
  });
  for (const cols of [60, 80]) {
    for (const args of [["ls"], ["images"]]) {
      const { code, lines } = await runOnTerminal(args, { socket: daemon.socket, cols });
      assert.equal(code, 0);
      assert.equal(lines.length, 3, lines.join("\n"));
      for (const line of lines) assert.ok(line.length < cols, `${cols}: ${line}`);
    }
  }
  const { lines } = await runOnTerminal(["ls"], { socket: daemon.socket, cols: 80 });
  assert.match(lines[0] ?? "", /^ID +TAG +INDEX +STATE .*CREATED/);
  assert.match(lines[2] ?? "", /^sb-ab000000 +py +1 +running /);
  for (const args of [
    ["ls", "--no-trunc"],
    ["ls", "--wide"],
  ]) {
    const full = await runOnTerminal(args, { socket: daemon.socket, cols: 80 });
    assert.match(full.text, /123457 .* dev .*job=42,team=search-and-rescue|job=42,team=search-and-rescue/);
    assert.equal(full.text.includes(idA), args.includes("--no-trunc"));
  }
});

test("tables have full ids and all columns without a terminal, with -q and with --json", async () => {
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json: children } });
  const { stdout } = await runCli(["ls"], daemon);
  assert.match(stdout, /^ID +TAG +INDEX +STATE +READY MS +PID +CREATED +TTL +WORKSPACE +LABELS\n/);
  assert.match(stdout, new RegExp(`\n${idB} +py +1 +running +12\\.3 +123457`));
  const quiet = await runOnTerminal(["ls", "-q"], { socket: daemon.socket, cols: 60 });
  assert.deepEqual(quiet.lines, [idA, idB]);
  const json = await runOnTerminal(["ls", "--json"], { socket: daemon.socket, cols: 60 });
  assert.deepEqual(JSON.parse(json.text), children);
});

test("config fits the terminal and shows a dash for what is not set", async () => {
  const socket = "/nonexistent/s";
  const env = { FORKD_DATA_DIR: "/nonexistent/data", FORKD_RUNTIME_DIR: "/nonexistent/run" };
  const { lines, text } = await runOnTerminal(["config"], { socket, cols: 80, env });
  for (const line of lines.slice(0, -1)) assert.ok(line.length < 80, line);
  assert.match(text, /\ntoken_file +- +default/);
  assert.match(text, /\nallowed_hosts +- +default/);
  assert.match(text, /\nlisten .*\r\n {4}Address and port for HTTP over TCP\./);
  const plain = await runCli(["config"], { env });
  assert.match(plain.stdout, /^SETTING +VALUE +FROM +ALLOWED +MEANING\n/);
  assert.doesNotMatch(plain.stdout, / null | \[\] /);
  const names = (await runCli(["config", "-q"], { env })).stdout.split("\n");
  assert.ok(names.includes("listen") && names.includes("token_file"));
});

test("every listing prints one name per line with -q", async () => {
  const workspace = {
    id: idA,
    name: "dev",
    source_snapshot_tag: "py",
    status: "running",
    created_at_unix,
    last_active_unix: created_at_unix,
  };
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: children },
    "GET /v1/snapshots": { json: [snapshot("a"), snapshot("b")] },
    "GET /v1/workspaces": { json: [workspace] },
    "GET /v1/keys": { json: [{ name: "ci", scope: "run", created_at_unix }] },
  });
  const printed = async (...args: string[]) => (await runCli([...args, "-q"], daemon)).stdout;
  assert.equal(await printed("ls"), `${idA}\n${idB}\n`);
  assert.equal(await printed("images"), "a\nb\n");
  assert.equal(await printed("workspace", "ls"), "dev\n");
  assert.equal(await printed("keys", "ls"), "ci\n");
});

test("images --sort orders by natural tag, newest or largest, and then applies --limit", async () => {
  const of = (tag: string, created: number, bytes: number) => ({
    ...snapshot(tag),
    created_at_unix: created,
    physical_bytes: bytes,
  });
  const json = [of("t1", 1, 5), of("t10", 3, 1), of("t2", 2, 9)];
  await using daemon = await openFakeDaemon({ "GET /v1/snapshots": { json } });
  const printed = async (...args: string[]) =>
    (await runCli(["images", "-q", ...args], daemon)).stdout.trim().split("\n");
  assert.deepEqual(await printed(), ["t1", "t2", "t10"]);
  assert.deepEqual(await printed("--sort", "time", "--limit", "2"), ["t10", "t2"]);
  assert.doesNotMatch(daemon.asked.at(-1)?.path ?? "", /limit=2\b/);
  assert.deepEqual(await printed("--sort", "size"), ["t2", "t1", "t10"]);
});

test("tree TAG prints one lineage, with -q its tags, and names similar tags for one that is missing", async () => {
  const of = (tag: string, parent_tag?: string) => ({ ...snapshot(tag), ...(parent_tag && { parent_tag }) });
  const json = { snapshots: [of("py"), of("step", "py"), of("other")], sandboxes: [] };
  await using daemon = await openFakeDaemon({ "GET /v1/tree": { json } });
  assert.match((await runCli(["tree", "step"], daemon)).stdout, /^py {2}.*\n`-- step {2}.*\n$/);
  assert.equal((await runCli(["tree", "step", "-q"], daemon)).stdout, "py\nstep\n");
  const parsed = JSON.parse((await runCli(["tree", "step", "--json"], daemon)).stdout) as {
    snapshots: unknown[];
  };
  assert.equal(parsed.snapshots.length, 2);
  assert.deepEqual(await runCli(["tree", "stpe"], daemon), {
    code: 3,
    stdout: "",
    stderr:
      'forkd: Cannot find snapshot "stpe"\n  Did you mean "step"? Run `forkd images` to list snapshots.\n',
  });
});
