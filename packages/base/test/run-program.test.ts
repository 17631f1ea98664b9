import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ProgramFailure, runProgram } from "../src/run-program.ts";
import { temporaryDirectory, until } from "@forkd/test-support";

async function failureOf(work: Promise<unknown>): Promise<ProgramFailure> {
  const error: unknown = await work.then(
    () => assert.fail("succeeded"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ProgramFailure, String(error));
  return error;
}

test("runProgram() returns stdout and stderr separately", async () => {
  const { stdout, stderr } = await runProgram("sh", ["-c", "echo out; echo err >&2; cat"]);
  assert.equal(stdout, "out\n");
  assert.equal(stderr, "err\n");
});

test("runProgram() uses no shell", async () => {
  const { stdout } = await runProgram("printf", ["%s", "$HOME; echo *"]);
  assert.equal(stdout, "$HOME; echo *");
});

test("runProgram() uses the given directory and environment", async (t) => {
  const dir = await temporaryDirectory(t);
  const { stdout } = await runProgram("/bin/sh", ["-c", "pwd; echo $A; echo ${B:-unset}"], {
    cwd: dir,
    env: { A: "1" },
  });
  assert.equal(stdout, `${dir}\n1\nunset\n`);
});

test("runProgram() rejects with the exit code and the last lines of stderr", async () => {
  const failure = await failureOf(runProgram("sh", ["-c", "seq 1 9 >&2; exit 3"]));
  assert.equal(failure.exitCode, 3);
  assert.equal(failure.program, "sh");
  assert.equal(failure.stderr, "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
  assert.equal(failure.message, "Cannot run sh: exit code 3: 5\n6\n7\n8\n9");
});

test("runProgram() rejects when a signal ends the program", async () => {
  const failure = await failureOf(runProgram("sh", ["-c", "kill -KILL $$"]));
  assert.equal(failure.exitCode, null);
});

test("runProgram() rejects with the name of a program that is missing", async () => {
  const failure = await failureOf(runProgram("forkd-no-such-program", ["--version"]));
  assert.match(failure.message, /^Cannot run forkd-no-such-program: .*ENOENT/);
  assert.equal(failure.exitCode, null);
});

test("runProgram() reports each line as it arrives, also a last one without a line end", async () => {
  const lines: string[] = [];
  await runProgram("sh", ["-c", "printf 'one\\n\\ntw'; sleep 0.05; printf 'o\\r50%%\\rdone'"], {
    onLine: (line) => lines.push(line),
  });
  assert.deepEqual(lines, ["one", "two", "50%", "done"]);
});

test("runProgram() does not mix stdout and stderr inside a line", async (t) => {
  const dir = await temporaryDirectory(t);
  const lines: string[] = [];
  // The unfinished line continues after the other stream has written a line.
  const script = "printf 'a'; echo warning >&2; while [ ! -e go ]; do sleep 0.01; done; echo b; echo é";
  const onLine = (line: string) => {
    lines.push(line);
    if (line === "warning") writeFileSync(join(dir, "go"), "");
  };
  await runProgram("sh", ["-c", script], { cwd: dir, onLine });
  assert.deepEqual(lines, ["warning", "ab", "é"]);
});

test("runProgram() ends the program when it is cancelled", async (t) => {
  const dir = await temporaryDirectory(t);
  const controller = new AbortController();
  const running = runProgram("sh", ["-c", "echo $$ > pid; exec sleep 60"], {
    cwd: dir,
    signal: controller.signal,
    onLine: () => undefined,
  });
  const failed = failureOf(running);
  await until(
    "the program has started",
    async () => (await readFile(join(dir, "pid"), "utf8").catch(() => "")) !== "",
  );
  const pid = Number(await readFile(join(dir, "pid"), "utf8"));
  controller.abort();
  assert.match((await failed).message, /Cannot run sh: This operation was aborted/);
  await until("the program has exited", () => !existsSync(`/proc/${pid}`));
});

test("runProgram() ends what the program has started when it is cancelled", async (t) => {
  const dir = await temporaryDirectory(t);
  const controller = new AbortController();
  const running = runProgram("sh", ["-c", "sleep 1000 & echo $! > pid; trap '' TERM; wait; wait"], {
    cwd: dir,
    signal: controller.signal,
  });
  const failed = failureOf(running);
  const pidOf = async (): Promise<number> => Number(await readFile(join(dir, "pid"), "utf8").catch(() => ""));
  await until("the program has started another", async () => (await pidOf()) > 0);
  const pid = await pidOf();
  controller.abort();
  await failed;
  await until("the other program has exited", () => !existsSync(`/proc/${pid}`));
});

test("runProgram() fails at once when the signal has already fired", async () => {
  const failure = await failureOf(runProgram("sleep", ["1000"], { signal: AbortSignal.abort() }));
  assert.match(failure.message, /aborted/);
});

test("runProgram() keeps the end of very long output", async () => {
  const { stdout } = await runProgram("sh", ["-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end"]);
  assert.equal(stdout.length, 1 << 20);
  assert.ok(stdout.endsWith("xend\n"));
});

test("runProgram() writes text and streams to stdin", async () => {
  assert.equal((await runProgram("cat", [], { input: "text" })).stdout, "text");
  const stream = async function* (): AsyncGenerator<Buffer> {
    yield Buffer.from("one ");
    await new Promise((resolve) => setImmediate(resolve));
    yield Buffer.from("two");
  };
  assert.equal((await runProgram("cat", [], { input: stream() })).stdout, "one two");
});

test("runProgram() ends the program when its input fails, and throws that error", async () => {
  const stream = async function* (): AsyncGenerator<Buffer> {
    yield await Promise.resolve(Buffer.from("first"));
    throw new Error("the source is gone");
  };
  await assert.rejects(runProgram("sleep", ["600"], { input: stream() }), /the source is gone/);
});

test("runProgram() reports the exit code of a program that does not read its input", async () => {
  const endless = async function* (): AsyncGenerator<Buffer> {
    for (;;) yield await Promise.resolve(Buffer.alloc(65_536));
  };
  await assert.rejects(runProgram("sh", ["-c", "exit 3"], { input: endless() }), /exit code 3/);
});
