/** E2B's official code interpreter client against a daemon and its VMs, and clients that come and go. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import { NotFoundError, Sandbox, SandboxError, TimeoutError } from "@e2b/code-interpreter";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { e2bAccess, type E2bDaemon } from "../support/e2b.ts";

let daemon: TestDaemon;
let options: E2bDaemon["options"];
let sandbox: Sandbox;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "node", "tiny"], env: { FORKD_LISTEN: "127.0.0.1:0" } });
  ({ options } = await e2bAccess(daemon));
  sandbox = await Sandbox.create("python", options);
});
/** The client keeps the process of a refused call until its timeout. */
const refused = { requestTimeoutMs: 5000 };
after(() => daemon[Symbol.asyncDispose]());

test("runCode() gives the value of the last expression, output and count", async () => {
  const first = await sandbox.runCode(
    "import sys\nprint('out ü\\u2028')\nprint('err', file=sys.stderr)\nx = 20 + 1\nx * 2",
  );
  assert.equal(first.text, "42");
  assert.equal(first.logs.stdout.join(""), "out ü\u2028\n");
  assert.equal(first.logs.stderr.join(""), "err\n");
  assert.equal(first.error, undefined);
  const second = await sandbox.runCode("x");
  assert.equal(second.text, "21");
  assert.equal(second.executionCount, (first.executionCount ?? 0) + 1);
  const quoted = await sandbox.runCode("'text'");
  assert.equal(quoted.text, "text");
  assert.deepEqual((await sandbox.runCode("y = 1")).results, []);
});

test("runCode() reports an exception with name, value and traceback, and keeps the output before it", async () => {
  const { error, logs } = await sandbox.runCode("print('before')\ndef f():\n    return 1 / 0\nf()");
  assert.deepEqual([error?.name, error?.value], ["ZeroDivisionError", "division by zero"]);
  assert.match(error?.traceback ?? "", /return 1 \/ 0/);
  assert.equal(logs.stdout.join(""), "before\n");
});

test("runCode() calls back as things happen, in order", async () => {
  const seen: string[] = [];
  const code = "import time\nfor i in range(3):\n    print(i)\n    time.sleep(0.3)\ndisplay('shown')\n7";
  await sandbox.runCode(code, {
    onStdout: ({ line, error }) => void seen.push(`${error}:${line}`),
    onResult: ({ text, isMainResult }) => void seen.push(`${isMainResult}:${text}`),
    onError: ({ name }) => void seen.push(name),
  });
  assert.deepEqual(seen, ["false:0\n", "false:1\n", "false:2\n", "false:shown", "true:7"]);
});

test("results have every form of an object", async () => {
  const png = Buffer.from("89504e470d0a1a0a", "hex").toString("base64");
  const { results } = await sandbox.runCode(`
class Rich:
    def __repr__(self): return "plain \\u2028"
    def _repr_html_(self): return "<b>ü</b>"
    def _repr_markdown_(self): return "**b**"
    def _repr_svg_(self): return "<svg/>"
    def _repr_latex_(self): return "$x$"
    def _repr_png_(self): return bytes.fromhex("89504e470d0a1a0a")
    def _repr_json_(self): return {"a": [1, None]}
Rich()`);
  assert.equal(results.length, 1);
  const [result] = results;
  assert.deepEqual(
    [result?.text, result?.html, result?.markdown, result?.svg, result?.latex, result?.png, result?.json],
    ["plain \u2028", "<b>ü</b>", "**b**", "<svg/>", "$x$", png, { a: [1, null] }],
  );
});

test("contexts keep variables and directories apart, restart and go", async () => {
  const context = await sandbox.createCodeContext({ cwd: "/tmp" });
  assert.deepEqual([context.language, context.cwd], ["python", "/tmp"]);
  await sandbox.runCode("only_here = 5", { context });
  assert.equal(
    (await sandbox.runCode("import os\n(only_here, os.getcwd())", { context })).text,
    "(5, '/tmp')",
  );
  assert.equal((await sandbox.runCode("only_here")).error?.name, "NameError");
  const listed = await sandbox.listCodeContexts();
  assert.deepEqual(listed.map(({ id }) => id).toSorted(), [context.id, "python-default"].toSorted());
  await sandbox.restartCodeContext(context);
  assert.equal((await sandbox.runCode("only_here", { context })).error?.name, "NameError");
  await sandbox.removeCodeContext(context);
  await assert.rejects(sandbox.runCode("1", { context, ...refused }), NotFoundError);
  await assert.rejects(sandbox.removeCodeContext("nothing"), NotFoundError);
});

test("contexts need a token of the sandbox, also to be listed", async () => {
  const ask = async (method: string, path: string, more: Record<string, string> = {}) => {
    const headers = { "e2b-sandbox-id": sandbox.sandboxId, "e2b-sandbox-port": "49999", ...more };
    const { status } = await fetch(`${options.sandboxUrl}/contexts${path}`, { method, headers });
    return status;
  };
  assert.equal(await ask("GET", ""), 401);
  assert.equal(await ask("POST", ""), 401);
  assert.equal(await ask("POST", "/python-default/restart"), 401);
  assert.equal(await ask("DELETE", "/python-default"), 401);
  const traffic = { "e2b-traffic-access-token": sandbox.trafficAccessToken ?? assert.fail("no token") };
  assert.equal(await ask("GET", "", traffic), 200);
  assert.equal(await ask("DELETE", "/%zz", traffic), 404);
});

test("variables are set for one execution", async () => {
  const code = "import os\nos.environ.get('FORKD_E2B')";
  assert.equal((await sandbox.runCode(code, { envs: { FORKD_E2B: "here" } })).text, "here");
  assert.deepEqual((await sandbox.runCode(code)).results, []);
});

test("an execution that times out or is cut off is interrupted, and the next one works", async () => {
  const endless = "import time\nwhile True: time.sleep(0.1)";
  await assert.rejects(sandbox.runCode(endless, { timeoutMs: 1500 }), TimeoutError);
  assert.equal((await sandbox.runCode("1 + 1")).text, "2");
});

test("bash runs without an interpreter; other languages are refused by name", async () => {
  const { logs, error: exit } = await sandbox.runCode("echo $A; exit 3", {
    language: "bash",
    envs: { A: "b" },
  });
  assert.deepEqual([logs.stdout.join(""), exit?.value], ["b\n", "exit status 3"]);
  for (const language of ["r", "javascript"])
    await assert.rejects(sandbox.runCode("1", { language, ...refused }), (error: unknown) => {
      assert.ok(error instanceof SandboxError);
      assert.match(error.message, /400 Cannot (run|eval)/);
      return true;
    });
});

test("JavaScript runs where the snapshot has its interpreter", async () => {
  const other = await Sandbox.create("node", options);
  const language = "javascript";
  const first = await other.runCode("const x = await Promise.resolve(20); console.log('out ü'); x + 1", {
    language,
  });
  assert.deepEqual([first.text, first.logs.stdout.join("")], ["21", "out ü\n"]);
  assert.equal((await other.runCode("x * 2", { language: "js" as typeof language })).text, "40");
  const failed = await other.runCode("throw new TypeError('no')", { language });
  assert.deepEqual([failed.error?.name, failed.error?.value], ["TypeError", "no"]);
  assert.deepEqual(
    (await other.listCodeContexts()).map(({ id }) => id),
    ["javascript-default"],
  );
  await assert.rejects(other.runCode("1", refused), /it has: node/);
  await other.kill();
});

test("a paused sandbox is not running; with auto-resume a call resumes it and its state is there", async () => {
  const other = await Sandbox.create("python", options);
  await other.runCode("kept = 7");
  await other.pause();
  assert.equal(await other.isRunning(), false);
  await assert.rejects(other.commands.run("true"), SandboxError);
  await assert.rejects(other.runCode("kept", refused), TimeoutError);
  await other.kill();
  const lifecycle = { onTimeout: "pause", autoResume: true } as const;
  const waking = await Sandbox.create("python", { ...options, lifecycle });
  await waking.runCode("kept = 8");
  await waking.pause();
  assert.equal(await waking.isRunning(), false, "a look does not resume it");
  assert.equal((await waking.runCode("kept")).text, "8");
  assert.equal(await waking.isRunning(), true);
  await waking.kill();
});

test("commands run with sh where there is no bash", async () => {
  const other = await Sandbox.create("tiny", options);
  const { stdout } = await other.commands.run("echo $((1 + 1)); id -un");
  assert.equal(stdout, "2\nuser\n");
  await assert.rejects(other.runCode("1", refused), SandboxError);
  await other.kill();
});

test("an execution ends when its sandbox is killed", async () => {
  const other = await Sandbox.create("python", options);
  let begun = false;
  const running = other.runCode("import time\nprint('begun')\ntime.sleep(1000)", {
    onStdout: () => {
      begun = true;
    },
  });
  const stopped = assert.rejects(running, TimeoutError);
  await until("the code runs", () => begun);
  await other.kill();
  await stopped;
});

test("a command outlives the daemon, and a client of the next daemon follows it", async () => {
  await withDaemons(["python"], async (start) => {
    const env = { FORKD_LISTEN: "127.0.0.1:0", FORKD_ON_STOP: "keep" };
    const one = await start(env);
    const before = await Sandbox.create("python", (await e2bAccess(one)).options);
    const command = await before.commands.run("echo begun; read x; echo got $x; exit 6", {
      background: true,
      stdin: true,
      timeoutMs: 0,
    });
    await until("the command runs", () => command.stdout === "begun\n");
    const cut = command.wait().catch((error: unknown) => error);
    await endDaemon(one, "SIGKILL");
    assert.ok((await cut) instanceof Error);
    const two = await start({ ...env, FORKD_ON_STOP: "stop" });
    const next = await Sandbox.connect(before.sandboxId, (await e2bAccess(two)).options);
    const follower = await next.commands.connect(command.pid);
    await next.commands.sendStdin(command.pid, "input\n");
    const exit = await follower
      .wait()
      .catch((error: unknown) => error as { exitCode: number; stdout: string });
    assert.deepEqual([exit.exitCode, exit.stdout], [6, "got input\n"]);
    assert.equal((await next.runCode("1 + 1")).text, "2");
  });
});
