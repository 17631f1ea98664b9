import assert from "node:assert/strict";
import { test } from "node:test";
import { lastLines } from "../../src/guest/last-lines.ts";
import { DetachKeys } from "../../src/terminal/detach-keys.ts";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { jsonLines, runCli } from "../run-cli.ts";

const output = (type: string, data: string, offset = 0) => ({ type, offset, data, encoding: "utf8" });
const exit = (exit_code: number) => ({ type: "exit", exit_code, timed_out: false, duration_ms: 1 });
const running = {
  exec_id: 7,
  pid: 70,
  state: "running",
  command: "sh",
  args: ["sh", "-c", "it's on"],
  age_secs: 61.5,
  stdin_open: false,
  pty: false,
  stdout_bytes: 12,
  stderr_bytes: 0,
};
const finished = {
  exec_id: 8,
  pid: 80,
  state: "finished",
  command: "ls",
  stdout_bytes: 0,
  stderr_bytes: 0,
  exit_code: 2,
};
const base = `/v1/sandboxes/${idA}`;
const get = { [`GET ${base}`]: { json: sandbox(idA) } };
const commands = (...json: unknown[]) => ({ ...get, [`GET ${base}/execs`]: { json } });

test("ps ID lists the commands of a sandbox, with -q their numbers", async () => {
  await using daemon = await openFakeDaemon(commands(running, finished));
  const { code, stdout } = await runCli(["ps", idA], daemon);
  assert.equal(code, 0);
  const [head, first, second] = stdout.split("\n");
  assert.match(head ?? "", /^COMMAND ID +STATE +EXIT +AGE +PID +OUTPUT +OPTIONS +COMMAND$/);
  assert.match(first ?? "", /^7 +running +- +61s +70 +12 B +- +sh -c 'it'\\''s on'$/);
  assert.match(second ?? "", /^8 +finished +2 +- +80 +0 B +- +ls$/);
  assert.equal((await runCli(["ps", idA, "-q"], daemon)).stdout, "7\n8\n");
  assert.deepEqual(JSON.parse((await runCli(["ps", idA, "--json"], daemon)).stdout), [running, finished]);
  assert.equal((await runCli(["ps", idA, "--all"], daemon)).code, 2);
});

test("ps shows arguments of a guest without control characters", async () => {
  const hostile = { ...running, args: ["a\u001b[2J\n\u202eb"] };
  await using daemon = await openFakeDaemon(commands(hostile));
  const { stdout } = await runCli(["ps", idA], daemon);
  assert.equal(stdout.split("\n").length, 3);
  // eslint-disable-next-line no-control-regex
  assert.doesNotMatch(stdout, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
});

test("attach prints the output of the only running command and exits with its code", async () => {
  const lines = [output("stdout", "earlier\n"), output("stderr", "oops\n"), exit(5)];
  await using daemon = await openFakeDaemon({
    ...commands(running, finished),
    [`GET ${base}/execs/7/stream`]: { lines },
  });
  assert.deepEqual(await runCli(["attach", idA], daemon), { code: 5, stdout: "earlier\n", stderr: "oops\n" });
  const json = await runCli(["attach", idA, "7", "--json"], daemon);
  assert.deepEqual(jsonLines(json.stdout), lines);
});

test("attach --tail begins with the last lines of each stream", async () => {
  const stream = [output("stdout", "one\ntwo\n"), output("stdout", "three\nfour\n", 8), exit(0)];
  const info = { ...finished, exit_code: 0, stdout_bytes: 19 };
  await using daemon = await openFakeDaemon({
    ...commands(info),
    [`GET ${base}/execs/8/stream`]: { lines: stream },
  });
  assert.equal((await runCli(["attach", idA, "8", "--tail", "2"], daemon)).stdout, "three\nfour\n");
  assert.equal((await runCli(["attach", idA, "8", "--tail", "0"], daemon)).stdout, "");
  assert.equal((await runCli(["attach", idA, "8", "-n", "9"], daemon)).stdout, "one\ntwo\nthree\nfour\n");
});

test("lastLines() passes on what comes after the position as it comes", async () => {
  async function* events() {
    yield { type: "stdout", offset: 0, data: "a\nb\nc", encoding: "utf8" } as const;
    yield { type: "stdout", offset: 5, data: "d\ne\n", encoding: "utf8" } as const;
    yield { type: "stderr", offset: 0, data: "new\n", encoding: "utf8" } as const;
  }
  const seen: string[] = [];
  for await (const event of lastLines(events(), { count: 1, written: { stdout: 5, stderr: 0 } }))
    if (event.type === "stdout" || event.type === "stderr")
      seen.push(`${event.offset} ${Buffer.from(event.data, event.encoding).toString()}`);
  assert.deepEqual(seen, ["4 c", "5 d\ne\n", "0 new\n"]);
});

test("attach without a number lists the commands if several run, and fails if none runs", async () => {
  await using several = await openFakeDaemon(commands(running, { ...running, exec_id: 9 }));
  const chosen = await runCli(["attach", idA], several);
  assert.deepEqual([chosen.code, chosen.stdout], [2, ""]);
  assert.match(chosen.stderr, /^COMMAND ID[^]*\n7 [^]*\n9 [^]*2 commands run\n {2}Run `forkd attach/);
  const json = await runCli(["attach", idA, "--json"], several);
  assert.deepEqual((JSON.parse(json.stderr) as { details: { matches: number[] } }).details.matches, [7, 9]);
  await using none = await openFakeDaemon(commands(finished));
  const absent = await runCli(["attach", idA], none);
  assert.equal(absent.code, 3);
  assert.match(absent.stderr, /no command runs\n {2}Run `forkd ps sb-/);
  assert.match((await runCli(["attach", idA, "99"], none)).stderr, /it has no command 99\n/);
});

test("attach forwards stdin to a command of exec -i, and nothing with --no-stdin", async () => {
  const held = { lines: [output("stdout", "ready\n")], hold: true as const };
  await using daemon = await openFakeDaemon({
    ...commands({ ...running, stdin_open: true }),
    [`GET ${base}/execs/7/stream`]: held,
    [`POST ${base}/execs/7/input`]: ({ body }) => {
      if (body.includes("eof")) daemon.release([exit(3)]);
      return {};
    },
  });
  assert.equal((await runCli(["attach", idA], { socket: daemon.socket, stdin: "typed" })).code, 3);
  assert.equal(daemon.asked.filter(({ path }) => path.endsWith("/input")).length, 2);
  await using other = await openFakeDaemon({
    ...commands({ ...running, stdin_open: true }),
    [`GET ${base}/execs/7/stream`]: held,
  });
  const silent = await runCli(["attach", idA, "--no-stdin"], {
    socket: other.socket,
    stdin: "typed",
    onStdout: () => other.release([exit(4)]),
  });
  assert.equal(silent.code, 4);
  assert.ok(!other.asked.some(({ path }) => path.endsWith("/input")));
});

test("Ctrl-C detaches from a command and sends it no signal", async () => {
  await using daemon = await openFakeDaemon({
    ...commands(running),
    [`GET ${base}/execs/7/stream`]: { lines: [output("stdout", "go\n")], hold: true },
  });
  const { code, stderr } = await runCli(["attach", idA], {
    socket: daemon.socket,
    onStdout: (_, child) => void child.kill("SIGINT"),
  });
  assert.deepEqual([code, stderr], [130, "Detached from command 7, which keeps running.\n"]);
  assert.ok(!daemon.asked.some(({ path }) => path.endsWith("/signal")));
});

test("DetachKeys finds Ctrl-P Ctrl-Q across chunks and passes all other keys on", () => {
  let count = 0;
  const keys = new DetachKeys(() => count++);
  const pass = (...typed: number[]) => [...keys.pass(Uint8Array.from(typed))];
  assert.deepEqual(pass(0x61, 0x10), [0x61]);
  assert.deepEqual(pass(0x62), [0x10, 0x62]);
  assert.deepEqual(pass(0x10, 0x10), [0x10]);
  assert.equal(count, 0);
  assert.deepEqual(pass(0x11, 0x63), []);
  assert.equal(count, 1);
});

test("exec -d keeps stdin and a terminal for attach", async () => {
  await using daemon = await openFakeDaemon({
    ...get,
    [`POST ${base}/exec`]: { json: { exec_id: 7, pid: 70 } },
  });
  assert.equal((await runCli(["exec", idA, "-dit", "--", "sh"], daemon)).code, 0);
  const body = JSON.parse(daemon.asked[1]?.body ?? "{}") as Record<string, unknown>;
  assert.deepEqual([body["stdin_open"], body["pty"]], [true, { rows: 24, cols: 80 }]);
});
