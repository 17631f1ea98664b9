/** Warm interpreters over HTTP: state, contexts, errors, interrupts. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
let python: Sandbox;
let node: Sandbox;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "node", "tiny"] });
  [python, node] = await Promise.all([daemon.forkd.create("python"), daemon.forkd.create("node")]);
});
after(() => daemon[Symbol.asyncDispose]());

test("eval() keeps state, returns the value as text and JSON, and separates stdout and stderr", async () => {
  const result = await python.eval(
    "import sys\nx = 20\nprint('out'); print('err', file=sys.stderr)\nx * 2 + 2",
  );
  assert.deepEqual(
    [result.result, result.resultJson, result.stdout, result.stderr],
    ["42", 42, "out\n", "err\n"],
  );
  assert.equal((await python.eval("x")).result, "20");
  assert.deepEqual((await python.eval("y = 1")).result, null);
  assert.deepEqual((await python.eval("numpy.arange(3)")).resultJson, [0, 1, 2]);
  const js = await node.eval("const a = 20; let b = { c: [1, a] }; console.log('out'); b");
  assert.deepEqual([js.resultJson, js.stdout], [{ c: [1, 20] }, "out\n"]);
  assert.equal((await node.eval("await Promise.resolve(a + 1)")).resultJson, 21);
});

test("eval() reports an error with its traceback and leaves the kernel usable", async () => {
  const result = await python.eval("def f():\n    return 1 / 0\nf()");
  assert.match(result.error ?? "", /^ZeroDivisionError: division by zero/);
  assert.match(result.traceback ?? "", /line 2, in f\n\s+return 1 \/ 0/);
  assert.equal(result.exitCode, 1);
  assert.match((await python.eval("x = (")).error ?? "", /SyntaxError/);
  assert.match((await python.eval("exit(3)")).error ?? "", /SystemExit/);
  assert.equal((await python.eval("1 + 1")).result, "2");
  assert.match((await node.eval("null.f")).error ?? "", /TypeError/);
  assert.match((await node.eval("process.exit(1)")).error ?? "", /exit/);
  assert.equal((await node.eval("1 + 1")).result, "2");
});

test("contexts are separate namespaces that can be listed and dropped", async () => {
  await python.eval("v = 'one'", { context: "one" });
  assert.match((await python.eval("v", { context: "two" })).error ?? "", /NameError/);
  assert.equal((await python.eval("v", { context: "one" })).result, "'one'");
  assert.deepEqual((await python.contexts.list()).map(({ name }) => name).sort(), ["default", "one", "two"]);
  await python.contexts.drop("one");
  assert.match((await python.eval("v", { context: "one" })).error ?? "", /NameError/);
});

test("a timeout interrupts endless code in both languages and keeps the state", async () => {
  await python.eval("kept = 1");
  const late = await python.eval("while True: pass", { timeoutMs: 1000 });
  assert.deepEqual([late.timedOut, late.interrupted, late.exitCode], [true, true, 1]);
  assert.equal((await python.eval("kept")).result, "1");
  await node.eval("globalThis.kept = 1");
  assert.equal((await node.eval("for (;;) {}", { timeoutMs: 1000 })).timedOut, true);
  assert.equal((await node.eval("await new Promise(() => {})", { timeoutMs: 1000 })).timedOut, true);
  assert.equal((await node.eval("kept")).result, "1");
});

test("interrupt() stops the running code", async () => {
  const running = python.eval("import time\nfor i in range(600): time.sleep(0.1)", { timeoutMs: 120_000 });
  await until("the code is interrupted", async () => {
    await python.interrupt();
    return Promise.race([
      running.then(() => true),
      new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 200)),
    ]);
  });
  const result = await running;
  assert.equal(result.interrupted, true);
  assert.equal(result.error, "KeyboardInterrupt");
  assert.doesNotMatch(result.traceback ?? "", /kernel\.py/);
});

test("evalStream() yields output while the code runs", async () => {
  let text = "";
  let last = "";
  // The code continues only after its first output has arrived.
  for await (const event of python.eval(
    "import os, time\nprint('begun')\nwhile not os.path.exists('/root/go'): time.sleep(0.01)\nprint('on')\n'end'",
  )) {
    last = event.type;
    if (event.type === "stdout") text += event.data;
    if (text === "begun\n") await python.files.write("/root/go", "");
    if (event.type === "result") assert.equal(event.result.result, "'end'");
  }
  assert.equal(text, "begun\non\n");
  assert.equal(last, "result");
});

test("eval() truncates long output", async () => {
  const result = await python.eval("for i in range(2000): print('x' * 5000)", { timeoutMs: 120_000 });
  assert.equal(result.truncated, true);
  assert.equal(result.stdout.length, 8 * 1024 * 1024);
  assert.deepEqual(result.truncatedParts, ["stdout"]);
});

test("eval() says that a long value is cut, and how long it is", async () => {
  for (const [sandbox, code] of [
    [python, "'x' * 5_000_000"],
    [node, "'x'.repeat(5_000_000)"],
  ] as const) {
    const result = await sandbox.eval(code);
    assert.deepEqual([result.truncated, result.resultJson], [true, null]);
    assert.deepEqual(result.truncatedParts, ["result", "result_json"]);
    assert.equal(result.resultBytes, 5_000_002);
    assert.ok((result.result ?? "").endsWith("…"));
  }
  const whole = await python.eval("'x' * 5_000");
  assert.deepEqual([whole.truncated, whole.truncatedParts, whole.restarted], [false, undefined, false]);
});

test("an interpreter that exits is reported, and starts again with its warm-up and without its state", async () => {
  await python.eval("state = 1");
  const crash = await rejectsWith(
    python.eval("import os; os.kill(os.getpid(), 9)"),
    "kernel_failed",
    /SIGKILL$/,
  );
  assert.equal(crash.details["out_of_memory"], undefined);
  const next = await python.eval("state");
  assert.match(next.error ?? "", /NameError/);
  assert.deepEqual([next.restarted, next.warmupError], [true, undefined]);
  const later = await python.eval("numpy.arange(3)");
  assert.deepEqual([later.resultJson, later.restarted], [[0, 1, 2], false]);
});

test("a sandbox that is paused after a crash of its interpreter has a warm one when it is resumed", async () => {
  const crashed = await daemon.forkd.create("python");
  await rejectsWith(
    crashed.eval("import os; os._exit(3)"),
    "kernel_failed",
    /python interpreter exited with code 3$/,
  );
  await crashed.pause();
  await crashed.resume();
  assert.deepEqual((await crashed.eval("numpy.arange(3)")).resultJson, [0, 1, 2]);
  await crashed.kill();
});

test("an interpreter that needs more memory than the guest has is out of memory", async () => {
  const hungry = await daemon.forkd.create("python");
  const code = "data = []\nwhile True: data.append(bytearray(b'x') * (16 << 20))";
  const crash = await rejectsWith(
    hungry.eval(code, { timeoutMs: 300_000 }),
    "kernel_failed",
    /: out of memory$/,
  );
  assert.equal(crash.details["out_of_memory"], true);
  await hungry.kill();
});

test("a kernel that does not start again fails an eval at its timeout, and a caller can cancel an eval", async () => {
  const slow = await daemon.forkd.create("python");
  // The program that the kernel starts with the next time never gets ready.
  const program = (await slow.eval("import sys; sys.executable")).result?.replaceAll("'", "") ?? "";
  await sh(
    slow,
    `rm ${program} && printf '#!/bin/sh\\nexec sleep 1000\\n' > ${program} && chmod 755 ${program}`,
  );
  await rejectsWith(slow.eval("import os; os.kill(os.getpid(), 9)"), "kernel_failed", /SIGKILL/);
  await rejectsWith(slow.eval("1", { timeoutMs: 1000 }), "deadline_exceeded", /not ready in 1 s/);
  const stop = new AbortController();
  const left = slow.eval("1", { timeoutMs: 0, signal: stop.signal });
  left.catch(() => undefined);
  assert.equal(await sh(slow, "echo ok"), "ok");
  stop.abort();
  await rejectsWith(left, "cancelled", /./);
  await slow.kill();
});

test("eval() in a sandbox without the language names the languages that it has", async () => {
  const tiny = await daemon.forkd.create("tiny");
  await rejectsWith(tiny.eval("1"), "unsupported", /it has: none/);
  await rejectsWith(python.eval("1", { language: "node" }), "unsupported", /it has: python/);
  assert.equal(await sh(tiny, "echo ok"), "ok");
  await tiny.kill();
});
