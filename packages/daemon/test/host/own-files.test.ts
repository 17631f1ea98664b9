import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, mkdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createLogger, nullLogger, Scope } from "@forkd/base";
import { openToken } from "../../src/access/token.ts";
import { runDaemon } from "../../src/daemon.ts";
import { loadConfig } from "../../src/settings/load.ts";
import { temporaryDir } from "../support.ts";

const files = ["token", "keys.json", "audit.jsonl", "idempotency.jsonl", "config.json"];
const kinds = {
  "a symbolic link": (path: string, victim: string) => symlink(victim, path),
  "a pipe": async (path: string) => void execFileSync("mkfifo", [path]),
  "a directory": (path: string) => mkdir(path),
};

test("the daemon refuses to start with a link, pipe or directory in place of its files, and names it", async () => {
  await using scope = new Scope();
  const root = await temporaryDir(scope);
  const victim = join(root, "victim");
  await writeFile(victim, "untouched");
  for (const file of files) {
    for (const [kind, make] of Object.entries(kinds)) {
      const dir = join(root, "data");
      const path = join(dir, file);
      await mkdir(dir);
      await make(path, victim);
      await assert.rejects(start(dir), (error: Error) => error.message.includes(path), `${file}: ${kind}`);
      assert.equal(await readFile(victim, "utf8"), "untouched");
      await rm(dir, { recursive: true });
    }
  }
});

async function start(dir: string): Promise<void> {
  const env = { FORKD_DATA_DIR: dir, FORKD_RUNTIME_DIR: join(dir, "run"), FORKD_LISTEN: "off" };
  const config = await loadConfig({}, env);
  const signal = AbortSignal.abort();
  const open = async () => ({ handlers: {} as never, [Symbol.asyncDispose]: async () => undefined });
  await runDaemon({ config, log: nullLogger(), version: "1", open, signal });
}

test("openToken() logs that it made a token private that others could read", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const token = await openToken({ dataDir: dir });
  await chmod(join(dir, "token"), 0o666);
  const lines: string[] = [];
  const log = createLogger({
    level: "warn",
    destination: { write: (line: string) => void lines.push(line) },
  });
  assert.equal(await openToken({ dataDir: dir }, log), token);
  assert.equal((await stat(join(dir, "token"))).mode & 0o777, 0o600);
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? "", /"event":"file\.private".*token had mode 666/);
  await openToken({ dataDir: dir }, log);
  assert.equal(lines.length, 1);
});

test("openToken() reads a token of the operator through a link, as a mounted secret is one", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const token = await openToken({ dataDir: dir });
  await symlink(join(dir, "token"), join(dir, "mounted"));
  assert.equal(await openToken({ dataDir: dir, file: join(dir, "mounted") }), token);
});
