import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { EvalResult } from "@forkd/contract";
import { temporaryDirectory } from "@forkd/test-support";
import { openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli, type Finished } from "../run-cli.ts";

const id = "sb-00000000000000000000000a";
const value: EvalResult = {
  result: "4",
  result_json: 4,
  stdout: "",
  stderr: "",
  error: null,
  traceback: null,
  error_info: null,
  results: [],
  exit_code: 0,
  interrupted: false,
  timed_out: false,
  truncated: false,
  restarted: false,
  language: "python",
  context: "default",
  duration_ms: 1,
};

test("eval shows displayed objects on stderr and saves their files", async (t) => {
  const dir = await temporaryDirectory(t);
  const png = Buffer.from("\x89PNG").toString("base64");
  const displays = [
    { is_main_result: false, text: "<Figure>", png },
    { is_main_result: false, html: "<b>" },
    { is_main_result: true, text: "4", svg: "<svg/>" },
  ];
  await using daemon = await openFakeDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: sandbox(id) },
    [`POST /v1/sandboxes/${id}/eval`]: {
      lines: [
        ...displays.map((display) => ({ type: "display", display })),
        { type: "result", result: { ...value, truncated: true, truncated_parts: ["results"] } },
      ],
    },
  });
  const plots = join(dir, "plots");
  const finished = await runCli(["eval", "--save", plots, id, "1"], daemon);
  assert.deepEqual([finished.code, finished.stdout], [0, "4\n"]);
  for (const line of ["<Figure>", "<b>", `Saved ${plots}/result-1.png`, "Some results are left out"])
    assert.ok(finished.stderr.includes(line), finished.stderr);
  assert.deepEqual((await readdir(plots)).sort(), ["result-1.png", "result-2.html", "result-3.svg"]);
  assert.equal((await readFile(join(plots, "result-1.png"))).toString("base64"), png);
  const refused = await runCli(["eval", "--save", "/dev/null/x", id, "1"], daemon);
  assert.equal(refused.code, 2);
});

async function notesOf(some: Partial<EvalResult>): Promise<Finished> {
  await using daemon = await openFakeDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: sandbox(id) },
    [`POST /v1/sandboxes/${id}/eval`]: { lines: [{ type: "result", result: { ...value, ...some } }] },
  });
  return await runCli(["eval", "--quiet", id, "1"], daemon);
}

test("eval prints only the value to stdout", async () => {
  const result = { ...value, stdout: "hi\n" };
  const failed = { ...result, result: null, error: "E: x", traceback: "Traceback\nE: x\n", exit_code: 1 };
  const hi = { type: "stdout", offset: 0, data: "hi\n", encoding: "utf8" };
  await using daemon = await openFakeDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: sandbox(id) },
    [`POST /v1/sandboxes/${id}/eval`]: ({ body }) => ({
      lines: [
        hi,
        {
          type: "result",
          result: body.includes("raise")
            ? failed
            : body.includes("slow")
              ? { ...failed, timed_out: true }
              : result,
        },
      ],
    }),
  });
  assert.deepEqual(await runCli(["eval", id, "-"], { socket: daemon.socket, stdin: "2+2" }), {
    code: 0,
    stdout: "4\n",
    stderr: "hi\n",
  });
  const raised = await runCli(["eval", id, "raise"], daemon);
  assert.deepEqual(raised, { code: 1, stdout: "", stderr: "hi\nTraceback\nE: x\n" });
  assert.equal((await runCli(["eval", id, "slow"], daemon)).code, 124);
});

test("Ctrl-C during an eval interrupts the code and exits with 130", async () => {
  const result = { result: null, error: "KeyboardInterrupt", traceback: null, exit_code: 1 };
  const interrupted = { ...result, interrupted: true, timed_out: false, truncated: false };
  await using daemon = await openFakeDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: sandbox(id) },
    [`POST /v1/sandboxes/${id}/eval`]: { lines: [], hold: true },
    [`POST /v1/sandboxes/${id}/interrupt`]: () => {
      daemon.release([{ type: "result", result: interrupted }]);
      return {};
    },
  });
  const running = runCli(["eval", id, "while True: pass"], {
    socket: daemon.socket,
    onStart: (child) => void daemon.askedFor("/eval").then(() => child.kill("SIGINT")),
  });
  assert.equal((await running).code, 130);
});

test("eval says how much of a value is shown", async () => {
  const cut: Partial<EvalResult> = { result: "x".repeat(1024), truncated: true };
  const sized = await notesOf({ ...cut, truncated_parts: ["result", "result_json"], result_bytes: 2048 });
  assert.deepEqual([sized.code, sized.stdout], [0, `${"x".repeat(1024)}\n`]);
  assert.equal(sized.stderr, "forkd: The value is truncated: 1.0 KiB of 2.0 KiB shown\n");
  const unsized = await notesOf({ ...cut, truncated_parts: ["result"] });
  assert.equal(unsized.stderr, "forkd: The value is truncated: 1.0 KiB shown\n");
});

test("eval says that output or a traceback is cut, and nothing about JSON that it does not show", async () => {
  const parts = async (...truncated_parts: NonNullable<EvalResult["truncated_parts"]>) =>
    (await notesOf({ truncated: true, truncated_parts })).stderr;
  assert.equal(await parts("stdout", "stderr"), "forkd: The output is truncated\n");
  assert.equal(await parts("traceback"), "forkd: The traceback is truncated\n");
  assert.equal(await parts("result_json"), "");
  assert.equal((await notesOf({ truncated: true })).stderr, "forkd: The output is truncated\n");
});

test("eval says that the interpreter was started again, and whether it is warm", async () => {
  const lost = "forkd: The interpreter had ended and was started again: earlier variables are gone";
  assert.equal((await notesOf({ restarted: true })).stderr, `${lost}\n`);
  assert.equal(
    (await notesOf({ restarted: true, warmup_error: "NameError: x" })).stderr,
    `${lost}, and the warm-up did not succeed: NameError: x\n`,
  );
});

test("an error shows the end of the output in its details, without control characters", async () => {
  const json = {
    error: 'Cannot run "make" in the parent: exit code 3; last output: oh no',
    code: "invalid_recipe",
    details: { output: "first\noh \u001b[1mno" },
  };
  await using daemon = await openFakeDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: sandbox(id) },
    [`POST /v1/sandboxes/${id}/eval`]: { status: 400, json },
  });
  const { code, stderr } = await runCli(["eval", id, "1"], daemon);
  assert.equal(code, 2);
  assert.equal(stderr, `forkd: ${json.error}\n  | first\n  | oh  [1mno\n`);
});
