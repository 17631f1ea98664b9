import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { jsonLines, runCli } from "../run-cli.ts";

const started = { type: "started", exec_id: 1, pid: 9 };
const output = (type: string, data: string) => ({
  type,
  offset: 0,
  data: Buffer.from(data).toString("base64"),
  encoding: "base64",
});
const exit = (exit_code: number) => ({ type: "exit", exit_code, timed_out: false, duration_ms: 1 });
const get = { [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) } };
const execPath = `POST /v1/sandboxes/${idA}/exec`;

test("exec streams output and exits with the code of the command", async () => {
  const lines = [started, output("stdout", "out"), output("stderr", "err"), exit(42)];
  await using daemon = await openFakeDaemon({ ...get, [execPath]: { lines } });
  const args = [
    "exec",
    idA,
    "-e",
    "A=1",
    "-w",
    "/tmp",
    "-u",
    "user",
    "--timeout",
    "1m",
    "--",
    "sh",
    "-c",
    "x",
    "--json",
  ];
  assert.deepEqual(await runCli(args, daemon), { code: 42, stdout: "out", stderr: "err" });
  assert.deepEqual(JSON.parse(daemon.asked[1]?.body ?? ""), {
    args: ["sh", "-c", "x", "--json"],
    env: { A: "1" },
    cwd: "/tmp",
    user: "user",
    timeout_secs: 60,
    stream: true,
  });
  const json = await runCli(["exec", idA, "--json", "--", "x"], daemon);
  assert.deepEqual(jsonLines(json.stdout), lines);
});

test("exec exits with 124 after --timeout", async () => {
  const late = { ...exit(137), timed_out: true };
  await using daemon = await openFakeDaemon({ ...get, [execPath]: { lines: [started, late] } });
  const { code, stderr } = await runCli(["exec", idA, "--timeout", "1s", "--", "sleep", "9"], daemon);
  assert.deepEqual([code, stderr], [124, "forkd: The command timed out and was killed\n"]);
});

test("exec -i forwards stdin and its end", async () => {
  await using daemon = await openFakeDaemon({
    ...get,
    [execPath]: { lines: [started], hold: true },
    [`POST /v1/sandboxes/${idA}/execs/1/input`]: ({ body }) => {
      if (body.includes("eof")) daemon.release([exit(0)]);
      return {};
    },
  });
  assert.equal(
    (await runCli(["exec", idA, "-i", "--", "cat"], { socket: daemon.socket, stdin: "hello" })).code,
    0,
  );
  const inputs = daemon.asked
    .filter(({ path }) => path.endsWith("/input"))
    .map(({ body }) => JSON.parse(body) as unknown);
  assert.deepEqual(inputs, [
    { data: Buffer.from("hello").toString("base64"), encoding: "base64" },
    { eof: true },
  ]);
});

test("exec -d prints the number of the command and returns at once", async () => {
  await using daemon = await openFakeDaemon({ ...get, [execPath]: { json: { exec_id: 7, pid: 70 } } });
  assert.deepEqual(await runCli(["exec", idA, "-d", "--", "sleep", "9"], daemon), {
    code: 0,
    stdout: "7\n",
    stderr: "",
  });
});

test("run kills its sandbox and exits with the code of the command", async () => {
  await using daemon = await openFakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
    [execPath]: { lines: [started, output("stdout", "hi\n"), exit(3)] },
    [`DELETE /v1/sandboxes/${idA}`]: {},
  });
  assert.deepEqual(await runCli(["run", "py", "--", "x"], daemon), { code: 3, stdout: "hi\n", stderr: "" });
  assert.deepEqual(
    daemon.asked.map(({ method }) => method),
    ["POST", "POST", "DELETE"],
  );
});

for (const [name, stop] of [
  ["signals", "SIGINT"],
  ["a closed stdout", "pipe"],
] as const) {
  test(`run kills its sandbox after ${name}`, async () => {
    const chatter = Array.from({ length: 2000 }, () => output("stdout", "x".repeat(100)));
    await using daemon = await openFakeDaemon({
      "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
      [execPath]: { lines: [started, ...(stop === "pipe" ? chatter : [output("stdout", "go")])], hold: true },
      [`POST /v1/sandboxes/${idA}/execs/1/signal`]: {},
      [`DELETE /v1/sandboxes/${idA}`]: {},
    });
    let count = 0;
    const timer = { stop: () => {} };
    const finished = await runCli(["run", "py", "--", "x"], {
      socket: daemon.socket,
      onStdout: (_, child) => {
        if (stop === "pipe") return void child.stdout?.destroy();
        // The command ignores signals: the first two are forwarded, the third exits.
        const interval = setInterval(() => (count++ < 3 ? child.kill("SIGINT") : timer.stop()), 100);
        timer.stop = () => clearInterval(interval);
      },
    });
    timer.stop();
    assert.equal(finished.code, stop === "pipe" ? 0 : 130);
    const asked = daemon.asked.map(
      ({ method, path, body }) => `${method} ${path.split("/").at(-1)} ${/SIG\w+/.exec(body)?.[0] ?? ""}`,
    );
    const signals = stop === "pipe" ? [] : ["POST signal SIGINT", "POST signal SIGKILL"];
    assert.deepEqual(asked, ["POST sandboxes ", "POST exec ", ...signals, `DELETE ${idA} `]);
  });
}

test(
  "exec -i fails if input is lost with the daemon, because the command would read a gap",
  { timeout: 60_000 },
  async () => {
    await using daemon = await openFakeDaemon({
      ...get,
      [execPath]: { lines: [started], hold: true },
      [`POST /v1/sandboxes/${idA}/execs/1/input`]: { cut: true },
    });
    const { code, stderr } = await runCli(["exec", idA, "-i", "--", "cat"], {
      socket: daemon.socket,
      stdin: "hello",
    });
    assert.notEqual(code, 0);
    assert.match(stderr, /Cannot reach the daemon/);
  },
);

test("exec continues after the reader closes stderr", async () => {
  const chatter = Array.from({ length: 2000 }, () => output("stderr", "x".repeat(100)));
  await using daemon = await openFakeDaemon({
    ...get,
    [execPath]: { lines: [started, ...chatter, output("stdout", "out"), exit(42)] },
  });
  const onStderr = (_: string, child: ChildProcess) => void child.stderr?.destroy();
  const { code, stdout } = await runCli(["exec", idA, "--", "x"], { socket: daemon.socket, onStderr });
  assert.deepEqual([code, stdout], [42, "out"]);
});
