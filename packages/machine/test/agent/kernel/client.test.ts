/** Runs the guest's Python kernel under the guest's agent. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import type { AgentClient } from "../../../src/agent/client.ts";
import { KernelClient, type KernelOptions } from "../../../src/agent/kernel/client.ts";
import { gate, pythonKernel, RealAgent } from "../support/real-agent.ts";

const context = "default";

function startKernel(client: AgentClient, options: KernelOptions = {}): Promise<KernelClient> {
  return KernelClient.start(client, { language: "python", argv: ["python3", pythonKernel] }, options);
}

test("a kernel reports its version and evaluates code", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  assert.match(await kernel.ready, /^python 3\./);
  const value = await kernel.evaluate({ code: "x = [1, 'ä']\nx", context });
  assert.deepEqual(value, {
    status: "value",
    text: "[1, 'ä']",
    json: value.json,
    executionCount: 1,
    timedOut: false,
  });
  assert.deepEqual(value.json?.parse(), [1, "ä"]);
  assert.equal((await kernel.evaluate({ code: "x.append(2)", context })).status, "none");
  assert.equal((await kernel.evaluate({ code: "len(x)", context })).json?.parse(), 3);
  assert.deepEqual(kernel.position().unanswered, []);
});

test("an error has its name, value and traceback", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const outcome = await kernel.evaluate({ code: "{}['k']", context });
  assert.equal(outcome.status, "error");
  assert.equal(outcome.error?.name, "KeyError");
  assert.match(outcome.text, /Traceback/);
  assert.equal(outcome.json, undefined);
});

test("output arrives before the value and at its own eval", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const seen: string[] = [];
  const evals = ["a", "b", "c"].map(async (name) => {
    const code = `import sys\nprint("${name}" * 50000)\nprint("${name}", file=sys.stderr)\n"${name}"`;
    const own = { 1: 0, 2: 0 };
    const onOutput = (stream: 1 | 2, bytes: Buffer): void => {
      assert.ok(bytes.every((byte) => byte === name.charCodeAt(0) || byte === 10));
      own[stream] += bytes.length;
    };
    const outcome = await kernel.evaluate({ code, context, onOutput });
    assert.deepEqual([outcome.json?.parse(), own], [name, { 1: 50_001, 2: 2 }]);
    seen.push(name);
  });
  await Promise.all(evals);
  assert.deepEqual(seen, ["a", "b", "c"]);
});

test("onStray gets output without an eval", async () => {
  await using agent = await RealAgent.open();
  let stray = "";
  let wake = (): void => undefined;
  const arrived = new Promise<void>((resolve) => (wake = resolve));
  const onStray = (_stream: 1 | 2, bytes: Buffer): void => {
    stray += bytes.toString();
    wake();
  };
  await using kernel = await startKernel(agent.client, { onStray });
  const { wait, open } = gate(agent);
  const code = `import threading\ndef later():\n${wait.replaceAll(/^/gm, " ")}print('later', flush=True)\nthreading.Thread(target=later).start()`;
  await kernel.evaluate({ code, context });
  await open();
  await arrived;
  assert.match(stray, /^later/);
});

test("output between two evals goes to the second one, before its own", async () => {
  await using agent = await RealAgent.open();
  let wake = (): void => undefined;
  const arrived = new Promise<void>((resolve) => (wake = resolve));
  await using kernel = await startKernel(agent.client, { onStray: () => wake() });
  const { wait, open } = gate(agent);
  const code = `import threading\ndef later():\n${wait.replaceAll(/^/gm, " ")}print('later', flush=True)\nthreading.Thread(target=later).start()`;
  await kernel.evaluate({ code, context });
  await open();
  await arrived;
  let seen = "";
  const onOutput = (_stream: 1 | 2, bytes: Buffer): void => void (seen += bytes.toString());
  await kernel.evaluate({ code: "print('own')", context, onOutput });
  assert.equal(seen, "later\nown\n");
  await kernel.evaluate({ code: "print('next')", context, onOutput });
  assert.equal(seen, "later\nown\nnext\n");
});

test("a value that is cut says so", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const cut = await kernel.evaluate({ code: "'x' * 5_000_000", context });
  assert.deepEqual([cut.wholeTextBytes, cut.isJsonCut, cut.json], [5_000_002, true, undefined]);
  const whole = await kernel.evaluate({ code: "'x' * 5_000", context });
  assert.deepEqual([whole.wholeTextBytes, whole.isJsonCut], [undefined, undefined]);
});

test("contexts are separate, are listed and can be dropped", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  await kernel.evaluate({ code: "y = 1", context: "one" });
  assert.equal((await kernel.evaluate({ code: "y", context: "two" })).error?.name, "NameError");
  assert.deepEqual((await kernel.contexts()).map(({ name }) => name).sort(), ["default", "one", "two"]);
  await kernel.dropContext("one");
  assert.deepEqual((await kernel.contexts()).map(({ name }) => name).sort(), ["default", "two"]);
});

test("a timeout interrupts the code and keeps the kernel", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  await kernel.evaluate({ code: "z = 5", context });
  const outcome = await kernel.evaluate({ code: "while True: pass", context, timeoutMs: 100 });
  assert.deepEqual([outcome.status, outcome.timedOut], ["interrupted", true]);
  assert.equal((await kernel.evaluate({ code: "z", context })).json?.parse(), 5);
});

test("runningContext is the context of the eval in progress", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  assert.equal(kernel.runningContext, undefined);
  const { wait, open } = gate(agent);
  const running = kernel.evaluate({ code: wait, context: "one" });
  const waiting = kernel.evaluate({ code: "1", context: "two" });
  assert.equal(kernel.runningContext, "one");
  await open();
  await running;
  await waiting;
  assert.equal(kernel.runningContext, undefined);
});

test("the timeout of an eval starts when the eval runs", async (t) => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const { wait, open } = gate(agent);
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const slow = kernel.evaluate({ code: wait, context });
  const queued = kernel.evaluate({ code: "1", context, timeoutMs: 300 });
  t.mock.timers.tick(300);
  await open();
  assert.equal((await slow).status, "none");
  assert.deepEqual([(await queued).json?.parse(), (await queued).timedOut], [1, false]);
});

test("an abort interrupts a running eval and withdraws a waiting one", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const controller = new AbortController();
  const { signal } = controller;
  const running = kernel.evaluate({ code: "import time; time.sleep(60)", context, signal });
  const waiting = kernel.evaluate({ code: "ran = True", context, signal });
  const checks = [running, waiting].map((promise) => assert.rejects(promise, { code: "cancelled" }));
  controller.abort();
  await Promise.all(checks);
  await assert.rejects(kernel.evaluate({ code: "1", context, signal }), { code: "cancelled" });
  assert.equal((await kernel.evaluate({ code: "ran", context })).error?.name, "NameError");
});

test("code that does not stop after an interrupt makes the kernel fail", async (t) => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client, { graceMs: 300 });
  const code =
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\nwhile True: pass";
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  // The code ignores SIGINT before its timeout.
  const onOutput = (): void => {
    t.mock.timers.tick(100);
    t.mock.timers.tick(300);
  };
  const stuck = kernel.evaluate({ code, context, timeoutMs: 100, onOutput });
  const waiting = kernel.evaluate({ code: "1", context });
  const check = assert.rejects(waiting, { code: "kernel_failed" });
  await assert.rejects(stuck, { code: "kernel_failed", message: /did not stop within 300 ms/ });
  await check;
  assert.equal(kernel.dead?.code, "kernel_failed");
  await assert.rejects(kernel.contexts(), { code: "kernel_failed" });
});

test("the error of a kernel that exits has its exit code and its last stderr lines", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const code = "import os\nos.write(2, b'goodbye\\n')\nos._exit(7)";
  await assert.rejects(kernel.evaluate({ code, context }), (error: AppError) => {
    assert.deepEqual(
      [error.code, error.details["code"], error.details["log"]],
      ["kernel_failed", 7, ["goodbye"]],
    );
    assert.match(error.message, /^The interpreter exited with code 7$/);
    for (const name of Object.keys(error.details)) assert.match(name, /^[a-z_]+$/);
    return true;
  });
  assert.equal(await kernel.ended, kernel.dead);
});

test("code that writes to the control stream makes the kernel fail, not the connection", async () => {
  for (const bytes of [
    "b'garbage!!'",
    "b'V' + (20 << 20).to_bytes(4, 'little')",
    "b'V\\x04\\0\\0\\0\\xff\\xff\\xff\\xff'",
  ]) {
    await using agent = await RealAgent.open();
    await using kernel = await startKernel(agent.client);
    const code = `import os, stat, time
for fd in map(int, os.listdir('/proc/self/fd')):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, ${bytes})
    except OSError: pass
time.sleep(60)`;
    await assert.rejects(kernel.evaluate({ code, context }), { code: "kernel_failed", message: /garbage/ });
    await agent.client.ping();
  }
});

test("start() fails after readyTimeoutMs if the program is not a kernel", async () => {
  await using agent = await RealAgent.open();
  const spec = { language: "x", argv: ["sleep", "60"], readyTimeoutMs: 100 };
  await assert.rejects(KernelClient.start(agent.client, spec), { code: "kernel_failed" });
  await assert.rejects(KernelClient.start(agent.client, { ...spec, argv: ["/none"] }), {
    code: "kernel_failed",
  });
  await assert.rejects(KernelClient.start(agent.client, { ...spec, argv: ["false"] }), {
    code: "kernel_failed",
  });
  assert.deepEqual(await agent.client.list(), []);
});

test("an error thrown by onOutput ends only its own eval", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const onOutput = (): void => {
    throw new RangeError("consumer");
  };
  const code = "import time\nprint('x', flush=True)\ntime.sleep(60)";
  await assert.rejects(kernel.evaluate({ code, context, onOutput }), RangeError);
  assert.equal((await kernel.evaluate({ code: "1", context })).json?.parse(), 1);
});

test("after a fork, attach, reseed and eval need no waiting in between", async () => {
  await using agent = await RealAgent.open();
  const first = await startKernel(agent.client);
  await first.evaluate({ code: "import os, random\nstate = random.getstate()\nprint('warm')", context });
  const position = first.position();
  assert.deepEqual(position.unanswered, []);
  await first.leave();
  const second = KernelClient.attach(agent.client, JSON.parse(JSON.stringify(position)) as typeof position);
  const prepared = second.afterFork(Buffer.alloc(32, 9), { FORKED: "yes" });
  const outcome = second.evaluate({ code: "[os.environ['FORKED'], random.getstate() == state]", context });
  await prepared;
  assert.deepEqual((await outcome).json?.parse(), ["yes", false]);
  await second[Symbol.asyncDispose]();
});

test("attach() skips answers that were in transit at a snapshot", async () => {
  await using agent = await RealAgent.open();
  const first = await startKernel(agent.client);
  const { wait, open } = gate(agent);
  const old = first.evaluate({ code: `${wait}print('old')\n1`, context });
  const check = assert.rejects(old, AppError);
  await agent.client.ping();
  const position = first.position();
  assert.equal(position.unanswered.length, 1);
  await first.leave();
  await check;
  const second = KernelClient.attach(agent.client, position);
  let output = "";
  const onOutput = (_stream: 1 | 2, bytes: Buffer): void => {
    output += bytes.toString();
  };
  const next = second.evaluate({ code: "print('new')\n2", context, onOutput });
  await open();
  const outcome = await next;
  assert.deepEqual([outcome.json?.parse(), output], [2, "new\n"]);
  await second[Symbol.asyncDispose]();
});

test("recover() finds and interrupts the kernel of an earlier daemon", async () => {
  await using agent = await RealAgent.open();
  const first = await startKernel(agent.client);
  await first.evaluate({ code: "kept = 3", context });
  const old = first.evaluate({ code: "import time\ntime.sleep(60)", context });
  const check = assert.rejects(old, AppError);
  await agent.client.ping();
  await first.leave();
  await check;
  assert.equal(await KernelClient.recover(agent.client, "node"), undefined);
  const second = await KernelClient.recover(agent.client, "python");
  assert.ok(second);
  assert.equal((await second.evaluate({ code: "kept", context })).json?.parse(), 3);
  await second[Symbol.asyncDispose]();
});

/** Finds the control stream in the frames of the kernel and sends a value with this JSON on it. */
function forgedValue(json: string): string {
  return `
import os, struct, sys
frame = sys._getframe()
while "ident" not in frame.f_locals: frame = frame.f_back
form = ${json}
data = struct.pack("<BIIBI", 86, 13 + len(form), frame.f_locals["ident"], 0, 0) + struct.pack("<I", len(form)) + form
while data: data = data[os.write(sys.modules["forkd_wire"].control, data):]
`;
}

test("code that forges its own value gets the bounds of a value, and costs its kernel", async (t) => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const parse = t.mock.method(JSON, "parse");
  const outcome = await kernel.evaluate({ code: forgedValue('b"[" + b"{}," * 1000000 + b"{}]"'), context });
  assert.equal(outcome.json?.text.length, 3_000_004);
  assert.equal(parse.mock.callCount(), 0);
  // The kernel itself answers the same message again.
  assert.match((await kernel.ended).message, /garbage: answer to \d+, which is not pending/);

  await using other = await startKernel(agent.client);
  const large = other.evaluate({ code: forgedValue('b"[" * (16 << 20)'), context });
  await assert.rejects(large, { code: "kernel_failed", message: /garbage: "V" of 16777229 bytes/ });
});
