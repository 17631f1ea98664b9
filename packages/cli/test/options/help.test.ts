import assert from "node:assert/strict";
import { test } from "node:test";
import { makeProgram } from "../../src/program.ts";
import { verbs } from "../../src/verbs.ts";
import { runCli } from "../run-cli.ts";

test("every verb has help with a summary, --json and an example", async () => {
  for (const verb of verbs) {
    const program = await makeProgram(verb, () => async () => {});
    const command = program.commands.find((candidate) => candidate.name() === verb.name);
    let text = "";
    command?.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
    for (const part of [verb.summary, "--json", "--quiet", "Examples:", `forkd ${verb.name}`]) {
      assert.ok(text.replaceAll(/\s+/g, " ").includes(part), `${verb.name}: ${part}`);
    }
  }
});

test("every help text is a phrase of at most 60 characters", async () => {
  for (const verb of verbs) {
    const program = await makeProgram(verb, () => async () => {});
    const command = program.commands.find((candidate) => candidate.name() === verb.name);
    const all = [...(command ? [command] : []), ...(command?.commands ?? [])];
    const texts = all.flatMap((each) => [
      each.description(),
      ...each.options.map(({ description }) => description),
      ...each.registeredArguments.map(({ description }) => description),
    ]);
    for (const text of texts) {
      assert.ok(text.length <= 60, `${verb.name}: ${text.length} characters: ${text}`);
      assert.match(text, /^[A-Z].*[^.]$/, `${verb.name}: ${text}`);
    }
  }
});

test("--help exits 0 for verbs and their aliases", async () => {
  for (const name of ["quickstart", "spawn", "serve", "derive", "snapshot-diff"]) {
    const { code, stdout, stderr } = await runCli([name, "--help"]);
    assert.deepEqual([code, stderr], [0, ""], name);
    assert.match(stdout, /^Usage: forkd /);
  }
});

test("help lists all verbs except the hidden one", async () => {
  const { code, stdout } = await runCli(["--help"]);
  assert.equal(code, 0);
  for (const { name, hidden } of verbs)
    assert.equal(new RegExp(`^  ${name}\\b`, "m").test(stdout), !hidden, name);
  assert.equal((await runCli([])).stdout, stdout);
  assert.match((await runCli(["help", "fork"])).stdout, /--ttl/);
});

test("--version and -V print the version of the CLI at once", async () => {
  for (const option of ["--version", "-V"])
    assert.deepEqual(await runCli([option]), { code: 0, stdout: "forkd 0.1.0\n", stderr: "" });
});

test("usage errors exit 2 with a message and a remedy", async () => {
  const cases = [
    [["frobnicate"], /Unknown command 'frobnicate'/],
    [["lss"], /Did you mean ls/],
    [["help", "frobnicate"], /Unknown command 'frobnicate'/],
    [["help", "frok"], /Did you mean fork/],
    [["ls", "--frob"], /Unknown option '--frob'/],
    [["info"], /Missing required argument 'name'/],
    [["images", "extra"], /Too many arguments/],
    [["fork", "--tag", "py", "-n", "0"], /whole number, 1 to 1000/],
    [["fork"], /Give the tag of a snapshot/],
    [["fork", "a", "--tag", "b"], /Give only one snapshot/],
    [["fork", "--tag", "py", "--ttl", "soon"], /duration/],
    [["kill"], /--all/],
    [["kill", "aa", "--all"], /either ids or/],
    [["cp", "a", "b"], /One side must be in a sandbox/],
    [["eval", "aa"], /either CODE or --file/],
    [["exec", "aa", "ls", "-la"], /Put `--` before/],
    [["exec"], /Missing required argument 'id'/],
    [["exec", "aa"], /Missing required argument 'command'/],
    [["exec", "aa", "--label", "a=b", "--", "ls"], /either an id or --label/],
    [["exec", "--label", "a=b", "ls"], /the command follows --/],
    [["exec", "--all"], /Missing required argument 'command'/],
    [["exec", "--all", "--tag", "py", "--", "ls"], /--all cannot be used with/],
    [["exec", "--all", "-d", "--", "ls"], /are for one sandbox/],
    [["exec", "aa", "--parallel", "2", "--", "ls"], /--parallel needs/],
    [["run", "py", "-i", "--vary", "-", "--", "cat"], /both read stdin/],
    [["branch", "aa", "--mode", "half"], /Allowed choices are full, diff, live/],
    [["branch", "aa", "--ttl", "1m"], /are for children. Give -n too/],
    [["branch", "aa", "-n", "2", "--no-wait"], /cannot be used with --no-wait/],
    [["snapshot", "--tag", "x"], /Give --rootfs PATH, or --from-sandbox ID/],
    [["snapshot", "--rootfs", "x"], /Name the snapshot with --tag/],
    [["snapshot", "--tag", "x", "--rootfs", "x", "--diff"], /need --from-sandbox/],
    [["snapshot", "--from-sandbox", "aa", "--rootfs", "x"], /--from-sandbox can be used only with/],
    [["snapshot", "--from-sandbox", "aa", "--diff", "--live"], /either --diff or --live/],
    [["derive", "--from", "a", "--tag", "b"], /a command after --, or --exec/],
    [["derive", "--from", "a", "--tag", "b", "--exec", "x", "--", "y"], /a command after --, or --exec/],
    [["derive", "--from", "a", "--tag", "b", "ls", "-la"], /Put `--` before/],
    [["snapshot-diff", "--from", "a", "--tag", "b", "ls", "-la"], /Put `--` before/],
    [["rewind", "aa"], /Required option '--to <tag>' not specified/],
    [["pause"], /Missing required argument 'id'/],
    [["rmi", "a", "--cascade", "--force"], /either --cascade or --force/],
    [["workspace", "create", "dev"], /Required option '--snapshot <tag>' not specified/],
    [["config", "set", "pool_memory_percent", "2", "log_level"], /"log_level" has no value/],
    [["completion", "tcsh"], /Allowed choices are bash, zsh, fish/],
  ] as const;
  for (const [args, message] of cases) {
    const { code, stdout, stderr } = await runCli(args);
    assert.deepEqual([code, stdout], [2, ""], args.join(" "));
    assert.match(stderr, /^forkd: /);
    assert.match(stderr, message);
  }
});

test("a usage error with --json is an error body on stderr", async () => {
  const { code, stderr } = await runCli(["ls", "--json", "--frob"]);
  assert.equal(code, 2);
  assert.equal((JSON.parse(stderr) as { code: string }).code, "invalid_request");
});
