import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { findVerb } from "../../src/verbs.ts";

const repository = new URL("../../../../../", import.meta.url);
const main = fileURLToPath(new URL("../../bundle/forkd.cjs", import.meta.url));
const page = (name: string) => readFileSync(new URL(name, repository), "utf8");
type Entry = { command?: string | string[]; args?: string[]; type?: string; url?: string; headers?: object };

function parse(language: string, text: string): unknown {
  if (language === "json") return JSON.parse(text);
  const program = "import tomllib, json, sys; print(json.dumps(tomllib.load(sys.stdin.buffer)))";
  return JSON.parse(execFileSync("python3", ["-c", program], { input: text, encoding: "utf8" }));
}

/** The entry "forkd" of a configuration, below any names. */
function entryOf(value: unknown): Entry | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if ("forkd" in value) return value.forkd as Entry;
  for (const each of Object.values(value)) {
    const found = entryOf(each);
    if (found !== undefined) return found;
  }
  return undefined;
}

test("every configuration of a client is valid and names a command line that exists", async () => {
  const fences = (text: string) => [...text.matchAll(/^```(json|toml)\n([^]*?)^```$/gm)];
  const inReadme = fences(page("README.md")).filter(([, , text = ""]) => text.includes("mcpServers"));
  const snippets = [...fences(page("docs/guide/mcp.md")), ...inReadme];
  assert.equal(snippets.length, 7 + inReadme.length);
  let commands = 0;
  for (const [, language = "", text = ""] of snippets) {
    const entry = entryOf(parse(language, text));
    assert.ok(entry, text);
    if (entry.url !== undefined) {
      assert.equal(new URL(entry.url).pathname, "/mcp");
      assert.match(JSON.stringify(entry.headers), /"Authorization":"Bearer \$\{/);
      continue;
    }
    const [program, name, ...options] = [entry.command ?? [], entry.args ?? []].flat();
    assert.equal(program, "forkd");
    const verb = findVerb(name);
    assert.ok(verb, text);
    const command = new Command(verb.name).exitOverride().configureOutput({ writeErr: () => undefined });
    (await verb.load()).define(command, () => async () => undefined);
    await command.parseAsync(options, { from: "user" });
    commands++;
  }
  assert.ok(commands >= 5);
});

test("forkd mcp answers initialize and tools/list without a daemon, and nothing else is on stdout", async (t) => {
  // No daemon can be started here: the tools are listed anyway.
  const env = { ...process.env, FORKD_DATA_DIR: "/dev/null/none", FORKD_RUNTIME_DIR: "/dev/null/none" };
  const child = spawn(process.execPath, [main, "mcp"], { env, stdio: ["pipe", "pipe", "pipe"] });
  const ended = once(child, "exit");
  t.after(() => child.kill());
  child.stderr.resume();
  const send = (message: object) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "x", version: "1" } };
  send({ id: 1, method: "initialize", params });
  send({ method: "notifications/initialized" });
  send({ id: 2, method: "tools/list" });
  send({ id: 3, method: "tools/call", params: { name: "list_snapshots" } });
  const answers = new Map<number, { result: Record<string, unknown> }>();
  for await (const line of createInterface({ input: child.stdout })) {
    const message = JSON.parse(line) as { id: number; result: Record<string, unknown> };
    answers.set(message.id, message);
    if (answers.size === 3) child.stdin.end();
  }
  assert.deepEqual(Object.keys(answers.get(1)?.result ?? {}).sort(), [
    "capabilities",
    "instructions",
    "protocolVersion",
    "serverInfo",
  ]);
  assert.ok(JSON.stringify(answers.get(2)?.result).includes('"name":"exec_command"'));
  assert.equal(answers.get(3)?.result["isError"], true);
  assert.deepEqual(await ended, [0, null]);
});

test("options of the HTTP transport are refused without --http, and addresses are checked", async () => {
  const run = (...args: string[]) => {
    try {
      execFileSync(process.execPath, [main, "mcp", ...args], { stdio: ["ignore", "pipe", "pipe"] });
      return "";
    } catch (error) {
      return String((error as { stderr: Buffer }).stderr);
    }
  };
  assert.match(run("--key-file", "x"), /--key-file needs --http/);
  assert.match(run("--allow-host", "x"), /--allow-host needs --http/);
  assert.match(run("--http", "8890"), /an address and a port/);
  assert.match(run("--http", "127.0.0.1:99999"), /an address and a port/);
  assert.match(
    run("--http", "127.0.0.1:0", "--key-file", "/none", "--tls-cert", "x"),
    /go together|no such file/,
  );
});
