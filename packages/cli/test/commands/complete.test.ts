import assert from "node:assert/strict";
import { test } from "node:test";
import { Command } from "commander";
import { optionValues } from "../../src/commands/complete.ts";
import { verbs } from "../../src/verbs.ts";
import { idA, idB, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

test("completion completes every argument and option that is an id or a tag", async () => {
  const kinds = { id: "sandboxes", tag: "tags" } as const;
  for (const verb of verbs) {
    const command = new Command(verb.name);
    (await verb.load()).define(command, () => async () => {});
    const named = (name: string | undefined) => Object.entries(kinds).find(([each]) => each === name)?.[1];
    const operand = named(command.registeredArguments[0]?.name());
    if (operand !== undefined) assert.equal(verb.completes, operand, verb.name);
    assert.deepEqual(
      Object.keys(verb.subcommands ?? {}),
      command.commands.map((each) => each.name()),
      verb.name,
    );
    for (const { long, flags } of [command, ...command.commands].flatMap(({ options }) => options)) {
      const value = named(/<(\w+)>$/.exec(flags)?.[1]);
      if (value !== undefined) assert.equal(optionValues[long ?? ""], value, `${verb.name} ${long}`);
    }
  }
});

test("completion completes verbs, tags, ids and options", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [sandbox(idA), sandbox(idB, 1)] },
  });
  const complete = async (...words: string[]) =>
    (await runCli(["__complete", "--", ...words], daemon)).stdout.split("\n").filter(Boolean);
  assert.deepEqual(await complete("im"), ["images"]);
  assert.deepEqual(await complete("der"), ["derive"]);
  assert.deepEqual(await complete("snapshot-d"), ["snapshot-diff"]);
  assert.ok(!(await complete("")).includes("snapshot-diff"));
  assert.deepEqual(await complete("kill", "sb-aa"), [idA]);
  assert.deepEqual(await complete("kill", "--ta"), ["--tag"]);
  assert.deepEqual(await complete("verify", "py", "--only", "co"), ["connections", "compatibility"]);
  assert.deepEqual(await complete("top", "--sort", "m"), ["memory"]);
  assert.deepEqual(await complete("serve", "--log-f"), ["--log-file"]);
  assert.deepEqual((await runCli(["__complete", "--", "kill", ""])).stdout, "");
  assert.deepEqual(await complete("--ver"), ["--version"]);
  assert.match((await runCli(["completion", "bash"])).stdout, /complete -o default -F _forkd forkd/);
});

test("completion completes commands and contexts of a running sandbox", async () => {
  const paused = { ...sandbox(idB, 1), state: "paused" };
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [sandbox(idA), paused] },
    [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
    [`GET /v1/sandboxes/${idA}/execs`]: { json: [{ exec_id: 71 }, { exec_id: 82 }] },
    [`GET /v1/sandboxes/${idA}/contexts`]: { json: [{ name: "default" }, { name: "job-7" }] },
  });
  const complete = async (...words: string[]) =>
    (await runCli(["__complete", "--", ...words], daemon)).stdout.split("\n").filter(Boolean);
  assert.deepEqual(await complete("attach", ""), [idA, idB]);
  assert.deepEqual(await complete("attach", "--tail", "3", ""), [idA, idB]);
  assert.deepEqual(await complete("attach", "aa", ""), ["71", "82"]);
  assert.deepEqual(await complete("attach", "aa", "7"), ["71"]);
  assert.deepEqual(await complete("attach", "ab", ""), []);
  assert.deepEqual(await complete("contexts", "aa", "--drop", "j"), ["job-7"]);
  assert.deepEqual(await complete("interrupt", "--language", "p"), ["python"]);
  assert.ok(!daemon.asked.some(({ path }) => path.includes(`${idB}/`)));
});
