import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";
import { runOnTerminal } from "../run-terminal.ts";

const secret = {
  name: "API_KEY",
  hosts: ["api.example.com", "*.example.org"],
  header: "Authorization",
  format: "Bearer {}",
  placeholder: `forkd-secret-${"0".repeat(32)}`,
  created_at_unix: Date.now() / 1000 - 3600 * 5,
};
const set = ["secrets", "set", "API_KEY", "--host", "api.example.com"];
const answers = { "POST /v1/secrets": { json: secret }, "GET /v1/secrets": { json: [secret] } };

function bodyOf(daemon: { asked: { body: string }[] }): unknown {
  return JSON.parse(daemon.asked.at(-1)?.body ?? "");
}

test("secrets set reads the value from stdin, without its last line break", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { socket } = daemon;
  const plain = await runCli([...set, "--host", "*.example.org"], { socket, stdin: "s3cret\n" });
  assert.deepEqual(plain, {
    code: 0,
    stdout: "API_KEY\n",
    stderr: `Secret API_KEY is for api.example.com, *.example.org in the header Authorization. Guests see ${secret.placeholder}.\n`,
  });
  assert.deepEqual(bodyOf(daemon), {
    name: "API_KEY",
    value: "s3cret",
    hosts: ["api.example.com", "*.example.org"],
  });
  const named = await runCli([...set, "--header", "X-Key", "--format", "{}", "--json"], {
    socket,
    stdin: " a \n\n",
  });
  assert.deepEqual(JSON.parse(named.stdout), secret);
  assert.deepEqual(bodyOf(daemon), {
    name: "API_KEY",
    value: " a \n",
    hosts: ["api.example.com"],
    header: "X-Key",
    format: "{}",
  });
});

test("secrets set reads the value from a file", async () => {
  await using daemon = await openFakeDaemon(answers);
  const file = join(daemon.dir, "token");
  await writeFile(file, "from-file\r\n");
  await mkdir(join(daemon.dir, "directory"));
  assert.equal((await runCli([...set, "--from-file", file, "-q"], daemon)).code, 0);
  assert.deepEqual(bodyOf(daemon), { name: "API_KEY", value: "from-file", hosts: ["api.example.com"] });
  for (const [name, reason] of [
    ["absent", /Cannot read ".*absent": no such file or directory/],
    ["directory", /Cannot read ".*directory": it is a directory/],
  ] as const) {
    const { code, stderr } = await runCli([...set, "--from-file", join(daemon.dir, name)], daemon);
    assert.equal(code, 3);
    assert.match(stderr, reason);
  }
});

test("secrets set asks on a terminal and does not show what is typed", async () => {
  await using daemon = await openFakeDaemon(answers);
  const type = async (keys: string) => {
    let isTyped = false;
    return runOnTerminal(set, {
      socket: daemon.socket,
      cols: 80,
      onOutput: (text, child) => {
        if (isTyped || !text.includes("(not shown): ")) return;
        isTyped = true;
        child.stdin?.write(keys);
      },
    });
  };
  const typed = await type("wrong\u0015hidden\u007fn\r");
  assert.equal(typed.code, 0, typed.text);
  assert.doesNotMatch(typed.text, /hidde|wrong/);
  assert.deepEqual(bodyOf(daemon), { name: "API_KEY", value: "hidden", hosts: ["api.example.com"] });
  daemon.asked.length = 0;
  assert.equal((await type("half\u0003")).code, 130);
  assert.equal((await type("half\u0004")).code, 7);
  assert.deepEqual(daemon.asked, []);
});

test("secrets set refuses what it cannot use before it calls the daemon", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { socket } = daemon;
  for (const [args, stdin, message] of [
    [["secrets", "set"], "x", /Missing required argument 'name'/],
    [["secrets", "set", "A"], "x", /Give the hosts that may receive the value with --host/],
    [[...set, "value"], "x", /Too many arguments/],
    [set, "", /The value is empty/],
    [set, "\n", /The value is empty/],
    [set, "x".repeat(70_000), /longer than 65536 bytes/],
  ] as const) {
    const { code, stderr } = await runCli(args, { socket, stdin });
    assert.equal(code, 2, args.join(" "));
    assert.match(stderr, message);
  }
  assert.deepEqual(daemon.asked, []);
});

test("secrets ls shows hosts, header and placeholder", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { code, stdout } = await runCli(["secrets", "ls"], daemon);
  assert.equal(code, 0);
  const [head = "", row = ""] = stdout.split("\n");
  assert.match(head, /^NAME +HOSTS +HEADER +FORMAT +CREATED +PLACEHOLDER$/);
  assert.match(
    row,
    /^API_KEY +api\.example\.com,\*\.example\.org +Authorization +Bearer \{\} +5h ago +forkd-secret-0+$/,
  );
  assert.equal((await runCli(["secrets", "ls", "-q"], daemon)).stdout, "API_KEY\n");
  assert.deepEqual(JSON.parse((await runCli(["secrets", "ls", "--json"], daemon)).stdout), [secret]);
});

test("secrets rm removes each secret and exits with the code of the first failure", async () => {
  const absent = { error: 'Cannot find secret "B"', code: "secret_not_found", details: {} };
  await using daemon = await openFakeDaemon({
    "DELETE /v1/secrets/A": {},
    "DELETE /v1/secrets/B": { status: 404, json: absent },
  });
  const { code, stdout, stderr } = await runCli(["secrets", "rm", "A", "B"], daemon);
  assert.deepEqual([code, stdout], [3, "A\n"]);
  assert.match(stderr, /Cannot find secret "B"\n {2}Run `forkd secrets ls` to list secrets/);
});
