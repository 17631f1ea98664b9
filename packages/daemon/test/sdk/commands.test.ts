/** Commands of the SDK against the real router over the real sockets; only the operations are the test's. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError, type ExecEvent, type ExecResult } from "@forkd/contract";
import { CommandError, wireOf } from "@forkd/sdk";
import { withSandbox } from "./support.ts";
import { deferred } from "../support.ts";

const result: ExecResult = {
  exec_id: 3,
  stdout: "out",
  stderr: "",
  exit_code: 0,
  timed_out: false,
  truncated: false,
  duration_ms: 1,
};

test("commands.run() returns the result, and throws with check", async () => {
  await using opened = await withSandbox({
    exec: async (input) => {
      assert.deepEqual([input.args, input.cwd, input.timeout_secs], [["ls", "-l"], "/w", 5]);
      return events(started, { type: "stderr", offset: 0, data: "bad\n", encoding: "utf8" }, failed);
    },
  });
  const options = { cwd: "/w", timeoutMs: 5000 };
  assert.equal((await opened.sandbox.commands.run(["ls", "-l"], options)).exitCode, 2);
  await assert.rejects(
    opened.sandbox.commands.run(["ls", "-l"], { ...options, check: true }),
    (error: CommandError) => {
      assert.ok(error instanceof CommandError);
      assert.equal(error.result.exitCode, 2);
      assert.match(error.message, /exit code 2\nbad/);
      return true;
    },
  );
});

function events(...items: ExecEvent[]): AsyncIterable<ExecEvent> {
  return (async function* () {
    yield* items;
  })();
}
const started: ExecEvent = { type: "started", exec_id: 3, pid: 9 };
const failed: ExecEvent = { type: "exit", exit_code: 2, timed_out: false, duration_ms: 1 };
const exit: ExecEvent = { type: "exit", exit_code: 4, timed_out: false, duration_ms: 1 };
const output: ExecEvent[] = [
  { type: "stdout", offset: 0, data: "a", encoding: "utf8" },
  { type: "stderr", offset: 0, data: "/w==", encoding: "base64" },
  { type: "stdout", offset: 1, data: "YgA=", encoding: "base64" },
];

test("commands.start() gives a handle to wait for, to iterate, or both", async () => {
  await using opened = await withSandbox({ exec: async () => events(started, ...output, exit) });
  const waited = await (await opened.sandbox.commands.start(["x"])).wait();
  const expected = { ...result, stdout: "ab\0", stderr: "\ufffd", exit_code: 4 };
  assert.deepEqual(wireOf(waited), expected);

  const handle = await opened.sandbox.commands.start(["x"]);
  assert.deepEqual([handle.execId, handle.pid], [3, 9]);
  const seen: unknown[] = [];
  const both = handle[Symbol.asyncIterator]();
  const late = handle.wait();
  for await (const event of both) seen.push(event);
  assert.deepEqual(wireOf(seen), [started, ...output, exit]);
  assert.deepEqual(wireOf(await late), expected);
  assert.equal(await handle.wait(), await late);
});

test("a handle's input arrives in order, and signals and sizes reach the daemon", async () => {
  const calls: unknown[] = [];
  const over = deferred();
  await using opened = await withSandbox({
    exec: async (input) => {
      assert.deepEqual([input.stdin_open, input.pty], [true, { rows: 5, cols: 6 }]);
      return (async function* () {
        yield started;
        await over.promise;
        yield exit;
      })();
    },
    execInput: async (input) => {
      calls.push(input.eof ? "eof" : Buffer.from(input.data, "base64").length);
      await new Promise((resolve) => setTimeout(resolve, calls.length === 1 ? 20 : 0));
      return undefined;
    },
    execSignal: (input) => void calls.push(input.signal) as undefined,
    execResize: (input) => void calls.push([input.rows, input.cols]) as undefined,
  });
  const handle = await opened.sandbox.commands.start(["cat"], { stdinOpen: true, pty: { rows: 5, cols: 6 } });
  void handle.write("é");
  void handle.write(new Uint8Array(600_000));
  await handle.closeStdin();
  await handle.resize(7, 8);
  await handle.signal("SIGINT");
  await handle.kill();
  assert.deepEqual(calls, [2, 524_288, 75_712, "eof", [7, 8], "SIGINT", "SIGKILL"]);
  over.resolve();
  assert.equal((await handle.wait()).exitCode, 4);
});

test("a handle that is left or aborted ends the command's request", async () => {
  let returned = deferred();
  await using opened = await withSandbox({
    exec: async (_, { signal }) =>
      (async function* () {
        try {
          yield started;
          await new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(signal.reason as Error)),
          );
        } finally {
          returned.resolve();
        }
      })(),
  });
  const left = await opened.sandbox.commands.start(["x"]);
  for await (const _ of left) break;
  await returned.promise;
  await assert.rejects(left.wait(), { code: "cancelled" });

  returned = deferred();
  const abort = new AbortController();
  const aborted = await opened.sandbox.commands.start(["x"], { signal: abort.signal });
  const waiting = aborted.wait();
  abort.abort();
  await assert.rejects(waiting, { code: "cancelled" });
  await returned.promise;
});

test("a failure in a stream is thrown by the iteration and by wait()", async () => {
  await using opened = await withSandbox({
    exec: async () =>
      (async function* () {
        yield started;
        throw new AppError("sandbox_dead", "It died");
      })(),
    eval: async () =>
      (async function* () {
        yield { type: "stdout", offset: 0, data: "x", encoding: "utf8" } as const;
        throw new AppError("kernel_failed", "It ended");
      })(),
  });
  const handle = await opened.sandbox.commands.start(["x"]);
  await assert.rejects(handle.wait(), { code: "sandbox_dead" });
  await assert.rejects(
    async () => {
      for await (const event of opened.sandbox.eval("x")) assert.equal(event.type, "stdout");
    },
    { code: "kernel_failed" },
  );
});

test("background() and attach() use the same command, which may be silent", async () => {
  const attached = deferred();
  await using opened = await withSandbox({
    exec: async (input) => {
      assert.equal(input.background, true);
      return { exec_id: 3, pid: 9 };
    },
    attachExec: async (input) => {
      assert.deepEqual([input.exec_id, input.stdout_offset, input.stderr_offset], [3, 1, 0]);
      return (async function* () {
        await attached.promise;
        yield* events(...output.slice(2), exit);
      })();
    },
  });
  const background = await opened.sandbox.commands.run(["sleep", "1"], { background: true });
  assert.deepEqual([background.execId, background.pid], [3, 9]);
  const handle = await opened.sandbox.commands.attach(background, { stdoutOffset: 1 });
  attached.resolve();
  assert.deepEqual([handle.execId, handle.pid], [3, undefined]);
  assert.equal((await handle.wait()).stdout, "b\0");
});
