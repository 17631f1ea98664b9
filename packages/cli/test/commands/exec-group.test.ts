import assert from "node:assert/strict";
import { test } from "node:test";
import { PrefixedLines } from "../../src/guest/prefixed-lines.ts";
import { idA, idB, openFakeDaemon, sandbox, snapshot } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const idC = "sb-ac0000000000000000000003";
const started = { type: "started", exec_id: 1, pid: 9 };
const output = (type: string, data: string) => ({ type, offset: 0, data, encoding: "utf8" });
const exit = (exit_code: number) => ({ type: "exit", exit_code, timed_out: false, duration_ms: 1 });
const all = (...infos: Record<string, unknown>[]) => ({
  "GET /v1/sandboxes": { json: infos },
  ...Object.fromEntries(infos.map((info) => [`GET /v1/sandboxes/${String(info["id"])}`, { json: info }])),
});
const execOf = (id: string) => `POST /v1/sandboxes/${id}/exec`;

test("exec --label runs in all sandboxes, prefixes lines, and exits with the first failure", async () => {
  await using daemon = await openFakeDaemon({
    ...all(sandbox(idA), sandbox(idB, 1), { ...sandbox(idC, 2), state: "paused" }),
    [execOf(idA)]: { lines: [started, output("stdout", "one\ntw"), output("stdout", "o"), exit(0)] },
    [execOf(idB)]: { lines: [started, output("stderr", "bad\u001b[2J\u0007\r\n"), exit(7)] },
  });
  const { code, stdout, stderr } = await runCli(["exec", "--label", "job=42", "--", "sh", "-c", "x"], daemon);
  assert.equal(code, 7);
  assert.equal(stdout, "sb-aa000000 | one\nsb-aa000000 | two\n");
  assert.deepEqual(stderr.trimEnd().split("\n").toSorted(), [
    "Left out 1 paused. Run `forkd resume ID` to resume a sandbox.",
    "Succeeded in 1 of 2 sandboxes, failed in 1.",
    "forkd: sb-ab000000: exit code 7",
    "sb-ab000000 | bad",
  ]);
  assert.equal(daemon.asked[0]?.path, "/v1/sandboxes?limit=1000&label=job%3D42");
  const bodies = daemon.asked.filter(({ method }) => method === "POST").map(({ body }) => body);
  assert.ok(bodies.every((body) => body.includes('"args":["sh","-c","x"]')));
  assert.equal(bodies.length, 2);
});

test("exec --all --json lists every outcome, with the error of a sandbox that failed", async () => {
  const dead = { status: 409, json: { error: "it is dead", code: "sandbox_dead", details: {} } };
  await using daemon = await openFakeDaemon({
    ...all(sandbox(idA), sandbox(idB, 1)),
    [execOf(idA)]: dead,
    [execOf(idB)]: { lines: [started, output("stdout", "out"), exit(0)] },
  });
  const { code, stdout } = await runCli(["exec", "--all", "--json", "--", "x"], daemon);
  assert.equal(code, 4);
  const [first, second] = JSON.parse(stdout) as Record<string, unknown>[];
  assert.deepEqual([first?.["id"], first?.["code"], first?.["error"]], [idA, "sandbox_dead", "it is dead"]);
  const { duration_ms: _, ...rest } = second ?? {};
  const result = { exit_code: 0, timed_out: false, stdout: "out", stderr: "", truncated: false };
  assert.deepEqual(rest, { id: idB, index: 1, ...result });
});

test("exec --parallel limits how many run at a time", async () => {
  let running = 0;
  let most = 0;
  const answer = () => {
    running += 1;
    most = Math.max(most, running);
    setTimeout(() => (running -= 1), 0);
    return { lines: [started, exit(0)] };
  };
  await using daemon = await openFakeDaemon({
    ...all(sandbox(idA), sandbox(idB, 1), sandbox(idC, 2)),
    ...Object.fromEntries([idA, idB, idC].map((id) => [execOf(id), answer])),
  });
  const { code, stderr } = await runCli(["exec", "--all", "--parallel", "1", "--", "x"], daemon);
  assert.deepEqual([code, most, stderr], [0, 1, "Succeeded in 3 of 3 sandboxes.\n"]);
});

test("Ctrl-C ends the command in all sandboxes and starts no more", async () => {
  const held = { lines: [started, output("stdout", "go\n")], hold: true as const };
  const signal = (id: string) => `POST /v1/sandboxes/${id}/execs/1/signal`;
  let signals = 0;
  const end = () => {
    signals += 1;
    if (signals === 2) daemon.release([exit(130)]);
    return { status: 204 };
  };
  await using daemon = await openFakeDaemon({
    ...all(sandbox(idA), sandbox(idB, 1), sandbox(idC, 2)),
    [execOf(idA)]: held,
    [execOf(idB)]: held,
    [signal(idA)]: end,
    [signal(idB)]: end,
  });
  let isSent = false;
  const { code, stderr } = await runCli(["exec", "--all", "--parallel", "2", "--", "x"], {
    socket: daemon.socket,
    onStdout: (text, child) => {
      if (isSent || text.split("\n").length < 3) return;
      isSent = true;
      child.kill("SIGINT");
    },
  });
  assert.equal(code, 130);
  assert.equal(signals, 2);
  assert.match(stderr, /sb-ac000000: The command was not started/);
  assert.ok(!daemon.asked.some(({ path }) => path === `/v1/sandboxes/${idC}/exec`));
});

test("exec in sandboxes that do not exist fails and names what the word is", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [] },
    "GET /v1/snapshots": { json: [snapshot("py")] },
  });
  const none = await runCli(["exec", "--label", "job=1", "--", "x"], daemon);
  assert.equal(none.code, 3);
  assert.match(none.stderr, /no running sandbox matches/);
  const tag = await runCli(["exec", "py", "--", "x"], daemon);
  assert.equal(tag.code, 3);
  assert.match(tag.stderr, /\n {2}It is a snapshot\. Run `forkd fork py` to fork one\.\n$/);
});

test("PrefixedLines splits lines that are too long and keeps characters whole", async () => {
  let text = "";
  const lines = new PrefixedLines("> ", async (part) => void (text += part));
  const bytes = Buffer.from("é");
  await lines.push(bytes.subarray(0, 1));
  await lines.push(bytes.subarray(1));
  await lines.push(Buffer.from("x".repeat(40_000)));
  await lines.end();
  const parts = text.split("\n");
  assert.deepEqual(
    parts.map(({ length }) => length),
    [16_386, 16_386, 7235, 0],
  );
  assert.ok(text.startsWith("> éx") && parts.slice(0, -1).every((part) => part.startsWith("> ")));
});

test("run takes the options of fork", async () => {
  await using daemon = await openFakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
    [execOf(idA)]: { lines: [started, exit(0)] },
    [`DELETE /v1/sandboxes/${idA}`]: {},
  });
  const options = ["--label", "job=42", "--ttl", "10m", "--memory-limit-mib", "128", "--idle-timeout", "5m"];
  const args = ["run", "py", ...options, "--on-timeout", "pause", "--vary", "-", "-e", "A=1", "--", "x"];
  const { code, stderr } = await runCli(args, { socket: daemon.socket, stdin: '[{"values":1}]' });
  assert.equal(code, 0, stderr);
  assert.deepEqual(JSON.parse(daemon.asked[0]?.body ?? ""), {
    snapshot_tag: "py",
    n: 1,
    env: { A: "1" },
    labels: { job: "42" },
    vary: [{ values: 1 }],
    ttl_secs: 600,
    idle_timeout_secs: 300,
    on_timeout: "pause",
    limits: { memory_mib: 128 },
  });
});
