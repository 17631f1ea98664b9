import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, idB, openFakeDaemon, sandbox, snapshot, type FakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const branched = {
  ...snapshot("fan"),
  parent_tag: "py",
  branched_from: idA,
  mode: "live",
  pause_ms: 12.34,
  stall_ms: 14,
  resumed_ms: 20,
  total_ms: 80,
  diff_logical_bytes: 2048,
  diff_physical_bytes: 2100,
  timings_ms: {},
  children: [] as unknown[],
};
const list = { "GET /v1/sandboxes": { json: [{ ...sandbox(idA), workspace: "dev" }, sandbox(idB, 1)] } };
const branchPath = `POST /v1/sandboxes/${idA}/branch`;
const started = { type: "started", exec_id: 1, pid: 9 };
const output = (type: string, data: string) => ({ type, offset: 0, data, encoding: "utf8" });
const exit = (exit_code: number, more = {}) => ({
  type: "exit",
  exit_code,
  timed_out: false,
  duration_ms: 1,
  ...more,
});

function bodies(daemon: FakeDaemon): unknown[] {
  return daemon.asked
    .filter(({ method }) => method === "POST")
    .map(({ body }) => JSON.parse(body) as unknown);
}

function trace(daemon: FakeDaemon): string[] {
  return daemon.asked.map(({ method, path }) => `${method} ${path}`);
}

test("branch prints the tag to stdout and the timings to stderr", async () => {
  await using daemon = await openFakeDaemon({ ...list, [branchPath]: { status: 201, json: branched } });
  assert.deepEqual(await runCli(["branch", "aa"], daemon), {
    code: 0,
    stdout: "fan\n",
    stderr: `Branched ${idA}: paused 12.3 ms (the guest lost 14.0 ms), 2.0 KiB diverged, 80.0 ms in total.\n`,
  });
  const json = await runCli(["branch", idA, "--tag", "fan", "--mode", "diff", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), branched);
  assert.deepEqual(bodies(daemon), [{}, { tag: "fan", mode: "diff" }]);
});

test("branch --no-wait reports that the snapshot is being written", async () => {
  const { total_ms: _total, stall_ms: _stall, ...pending } = branched;
  await using daemon = await openFakeDaemon({
    [branchPath]: { status: 202, json: { ...pending, status: "writing" } },
  });
  const { code, stdout, stderr } = await runCli(["branch", idA, "--no-wait"], daemon);
  assert.deepEqual([code, stdout], [0, "fan\n"]);
  assert.match(stderr, /paused 12\.3 ms, 2\.0 KiB diverged, still being written; run `forkd images`/);
  assert.deepEqual(bodies(daemon), [{ wait: false }]);
});

test("branch -n prints children and failures like fork", async () => {
  const failure = { index: 1, error: "no room", code: "capacity_exhausted", details: {} };
  const children = [{ ...sandbox(idB), snapshot_tag: "fan" }, failure];
  await using daemon = await openFakeDaemon({
    [branchPath]: { status: 201, json: { ...branched, children } },
  });
  const options = ["-n", "2", "-e", "A=b", "--label", "k=v", "--ttl", "1m", "--vary", "-"];
  const input = { socket: daemon.socket, stdin: '[{"values":1}]' };
  const plain = await runCli(["branch", idA, ...options], input);
  assert.equal(plain.code, 6);
  assert.match(plain.stdout, new RegExp(`^fan\nID +TAG .*\n${idB}  fan +0 +running `));
  assert.match(plain.stderr, /forkd: child 1: no room\n {2}Pause or kill sandboxes/);
  assert.deepEqual(bodies(daemon), [
    { n: 2, env: { A: "b" }, labels: { k: "v" }, ttl_secs: 60, vary: [{ values: 1 }] },
  ]);
  assert.equal((await runCli(["branch", idA, "-q", ...options], input)).stdout, `fan\n${idB}\n`);
  const json = await runCli(["branch", idA, "--json", ...options], input);
  assert.deepEqual([json.code, json.stderr], [6, ""]);
  assert.deepEqual((JSON.parse(json.stdout) as typeof branched).children, children);
});

test("snapshot --from-sandbox branches", async () => {
  await using daemon = await openFakeDaemon({ ...list, [branchPath]: { status: 201, json: branched } });
  const args = ["snapshot", "--from-sandbox", "dev", "--tag", "fan"];
  assert.equal((await runCli([...args, "--diff", "--no-wait"], daemon)).stdout, "fan\n");
  assert.equal((await runCli([...args, "--live"], daemon)).code, 0);
  assert.deepEqual(bodies(daemon), [
    { tag: "fan", mode: "diff", wait: false },
    { tag: "fan", mode: "live" },
  ]);
});

test("pause and resume accept several ids and names of workspaces", async () => {
  const paused = { error: "is paused", code: "sandbox_paused", details: {} };
  await using daemon = await openFakeDaemon({
    ...list,
    [`POST /v1/sandboxes/${idA}/pause`]: { json: { ...sandbox(idA), state: "paused" } },
    [`POST /v1/sandboxes/${idB}/pause`]: { status: 409, json: paused },
    [`POST /v1/sandboxes/${idA}/resume`]: { json: sandbox(idA) },
  });
  const { code, stdout, stderr } = await runCli(["pause", "dev", "ab"], daemon);
  assert.deepEqual([code, stdout], [4, `${idA}\n`]);
  assert.match(stderr, new RegExp(`forkd: ${idB}: is paused\n {2}Run \`forkd resume ID\``));
  const resumed = await runCli(["resume", "dev", idA, "--json"], daemon);
  assert.deepEqual(JSON.parse(resumed.stdout), [{ id: idA, resumed: true }]);
});

test("rewind sends its target and prints the id", async () => {
  await using daemon = await openFakeDaemon({
    ...list,
    [`POST /v1/sandboxes/${idA}/rewind`]: { json: sandbox(idA) },
  });
  assert.deepEqual(await runCli(["rewind", "dev", "--to", "fan"], daemon), {
    code: 0,
    stdout: `${idA}\n`,
    stderr: `Rewound ${idA} to fan in 12.3 ms.\n`,
  });
  assert.deepEqual(bodies(daemon), [{ to: "fan" }]);
});

test("derive runs the command, branches the sandbox and kills it", async () => {
  await using daemon = await openFakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
    [`POST /v1/sandboxes/${idA}/exec`]: {
      lines: [started, output("stdout", "one\n"), output("stderr", "two\n"), exit(0)],
    },
    [branchPath]: { status: 201, json: branched },
    [`DELETE /v1/sandboxes/${idA}`]: {},
  });
  const args = ["derive", "--from", "py", "--tag", "fan"];
  const plain = await runCli([...args, "-e", "A=1", "--timeout", "1m", "--", "make", "--json"], daemon);
  assert.deepEqual(plain, {
    code: 0,
    stdout: "fan\n",
    stderr: "one\ntwo\nDerived fan from py: 2.0 KiB diverged.\n",
  });
  assert.deepEqual(bodies(daemon), [
    { snapshot_tag: "py", n: 1, ttl_secs: 3660 },
    { args: ["make", "--json"], env: { A: "1" }, timeout_secs: 60, stream: true },
    { tag: "fan" },
  ]);
  assert.equal(daemon.asked.at(-1)?.method, "DELETE");
  const json = await runCli(["snapshot-diff", ...args.slice(1), "--exec", "a && b", "--json"], daemon);
  assert.deepEqual(
    json.stdout
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as { type: string }).type),
    ["stdout", "stderr", "snapshot"],
  );
  assert.deepEqual(bodies(daemon)[4], { args: ["/bin/sh", "-c", "a && b"], stream: true });
});

test("derive with a command that fails makes no snapshot", async () => {
  let end = exit(3);
  await using daemon = await openFakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
    [`POST /v1/sandboxes/${idA}/exec`]: () => ({ lines: [started, output("stderr", "broken\n"), end] }),
    [`DELETE /v1/sandboxes/${idA}`]: {},
  });
  const args = ["derive", "--from", "py", "--tag", "fan", "--", "make"];
  assert.deepEqual(await runCli(args, daemon), {
    code: 9,
    stdout: "",
    stderr: "broken\nforkd: Command make failed: exit code 3; no snapshot was made\n",
  });
  assert.deepEqual(trace(daemon), [
    "POST /v1/sandboxes",
    `POST /v1/sandboxes/${idA}/exec`,
    `DELETE /v1/sandboxes/${idA}`,
  ]);
  end = exit(137, { timed_out: true });
  assert.equal((await runCli(args, daemon)).code, 124);
});

for (const step of ["exec", "branch"] as const) {
  test(`Ctrl-C during the ${step} of derive leaves nothing behind`, async () => {
    // The snapshot of an aborted branch may be complete; derive removes it if it came from that sandbox.
    await using daemon = await openFakeDaemon({
      "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
      [`POST /v1/sandboxes/${idA}/exec`]: {
        lines: [started, output("stdout", "go"), ...(step === "branch" ? [exit(0)] : [])],
        ...(step === "exec" && { hold: true }),
      },
      [branchPath]: { bytes: "", hold: true },
      [`DELETE /v1/sandboxes/${idA}`]: {},
      "GET /v1/snapshots": { json: step === "branch" ? [branched] : [] },
      "DELETE /v1/snapshots/fan": {},
    });
    let interrupts = 0;
    const { code, stdout } = await runCli(["derive", "--from", "py", "--tag", "fan", "--", "make"], {
      socket: daemon.socket,
      onStderr: (_, child) => {
        if (interrupts++ === 0) void daemon.askedFor(`/${step}`).then(() => child.kill("SIGINT"));
      },
    });
    assert.deepEqual([code, stdout], [130, ""]);
    assert.deepEqual(trace(daemon), [
      "POST /v1/sandboxes",
      `POST /v1/sandboxes/${idA}/exec`,
      ...(step === "branch" ? [`POST /v1/sandboxes/${idA}/branch`] : []),
      `DELETE /v1/sandboxes/${idA}`,
      "GET /v1/snapshots",
      ...(step === "branch" ? ["DELETE /v1/snapshots/fan"] : []),
    ]);
  });
}
