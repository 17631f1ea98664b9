import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runCommand, type CommandFailure } from "../src/run-command.ts";
import { temporaryDirectory } from "@forkd/test-support";

async function failureOf(work: Promise<unknown>): Promise<CommandFailure> {
  return work.then(
    () => assert.fail("succeeded"),
    (error: unknown) => error as CommandFailure,
  );
}

test("runCommand() gives what the program wrote, stdout and stderr apart", async () => {
  const { stdout, stderr } = await runCommand("sh", ["-c", "echo out; echo err >&2; cat"]);
  assert.equal(stdout, "out\n");
  assert.equal(stderr, "err\n");
});

test("runCommand() uses no shell", async () => {
  const { stdout } = await runCommand("printf", ["%s", "$HOME; echo *"]);
  assert.equal(stdout, "$HOME; echo *");
});

test("runCommand() takes the directory and the environment that it is given", async (t) => {
  const dir = await temporaryDirectory(t);
  const { stdout } = await runCommand("/bin/sh", ["-c", "pwd; echo $A; echo ${B:-unset}"], {
    cwd: dir,
    env: { A: "1" },
  });
  assert.equal(stdout, `${dir}\n1\nunset\n`);
});

test("runCommand() rejects with the exit code and the last lines of stderr", async () => {
  const failure = await failureOf(runCommand("sh", ["-c", "seq 1 9 >&2; exit 3"]));
  assert.equal(failure.exitCode, 3);
  assert.equal(failure.command, "sh");
  assert.equal(failure.stderr, "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
  assert.equal(failure.message, "Cannot run sh -c: exit code 3: 5\n6\n7\n8\n9");
});

test("runCommand() rejects when a signal ends the program", async () => {
  const failure = await failureOf(runCommand("sh", ["-c", "kill -KILL $$"]));
  assert.equal(failure.exitCode, null);
});

test("runCommand() rejects with the name of a program that is missing", async () => {
  const failure = await failureOf(runCommand("forkd-no-such-program", ["--version"]));
  assert.match(failure.message, /^Cannot run forkd-no-such-program --version: .*ENOENT/);
  assert.equal(failure.exitCode, null);
});

test("runCommand() hands over each line as it comes, the last one too when it has no end", async () => {
  const lines: string[] = [];
  await runCommand("sh", ["-c", "printf 'one\\n\\ntw'; sleep 0.05; printf 'o\\r50%%\\rdone'"], {
    onLine: (line) => lines.push(line),
  });
  assert.deepEqual(lines, ["one", "two", "50%", "done"]);
});

test("runCommand() does not mix stdout and stderr inside a line", async (t) => {
  const dir = await temporaryDirectory(t);
  const lines: string[] = [];
  // The line that was begun goes on when the other one has come.
  const script = "printf 'a'; echo warning >&2; while [ ! -e go ]; do sleep 0.01; done; echo b; echo é";
  const onLine = (line: string) => {
    lines.push(line);
    if (line === "warning") writeFileSync(join(dir, "go"), "");
  };
  await runCommand("sh", ["-c", script], { cwd: dir, onLine });
  assert.deepEqual(lines, ["warning", "ab", "é"]);
});

test("runCommand() ends the program when it is cancelled", async (t) => {
  const dir = await temporaryDirectory(t);
  const controller = new AbortController();
  const running = runCommand("sh", ["-c", "echo $$ > pid; exec sleep 60"], {
    cwd: dir,
    signal: controller.signal,
    onLine: () => undefined,
  });
  const failed = failureOf(running);
  while (!existsSync(join(dir, "pid")) || (await readFile(join(dir, "pid"), "utf8")) === "") {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const pid = Number(await readFile(join(dir, "pid"), "utf8"));
  controller.abort();
  assert.match((await failed).message, /Cannot run sh -c: The operation was aborted/);
  const late = Date.now() + 60_000;
  while (existsSync(`/proc/${pid}`)) {
    assert.ok(Date.now() < late, "the program is still there");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
});

test("runCommand() fails at once when it is cancelled already", async () => {
  const failure = await failureOf(runCommand("sleep", ["1000"], { signal: AbortSignal.abort() }));
  assert.match(failure.message, /aborted/);
});

test("runCommand() keeps the end of very long output", async () => {
  const { stdout } = await runCommand("sh", ["-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end"]);
  assert.equal(stdout.length, 1 << 20);
  assert.ok(stdout.endsWith("xend\n"));
});
