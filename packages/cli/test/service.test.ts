import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runCli } from "./run-cli.ts";

const root = fileURLToPath(new URL("../../../../", import.meta.url)).replace(/\/$/, "");

test("service print fills in the tree and this Node", async () => {
  const { code, stdout, stderr } = await runCli(["service", "print"]);
  assert.equal(code, 0, stderr);
  assert.ok(stdout.includes(`\nExecStart=${process.execPath} ${root}/packages/cli/dist/src/main.js serve\n`));
  assert.ok(!stdout.includes("/opt/forkd") || root === "/opt/forkd");
  assert.match((await runCli(["service", "print", "--user"])).stdout, /WantedBy=default\.target/);
});

test("service install writes the unit once, --dry-run nothing, uninstall removes it", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  t.after(() => rm(dir, { recursive: true }));
  const unit = join(dir, "forkd.service");
  const dry = await runCli(["service", "install", "--dir", dir, "--dry-run"]);
  assert.deepEqual([dry.code, dry.stdout], [0, `would: write ${unit}\n`], dry.stderr);
  assert.deepEqual(await readdir(dir), []);
  assert.equal((await runCli(["service", "install", "--dir", dir])).stdout, `write ${unit}\n`);
  const again = await runCli(["service", "install", "--dir", dir]);
  assert.deepEqual([again.stdout, again.stderr], ["", `${unit} is up to date.\n`]);
  assert.equal(await readFile(unit, "utf8"), (await runCli(["service", "print"])).stdout);
  const gone = JSON.parse((await runCli(["service", "uninstall", "--dir", dir, "--json"])).stdout) as object;
  assert.deepEqual(gone, { path: unit, changed: true, steps: [`remove ${unit}`], dry_run: false });
  assert.deepEqual(await readdir(dir), []);
  assert.equal((await runCli(["service", "uninstall", "--dir", dir])).code, 0);
});

test("service refuses a tree that is not there or cannot be written into a unit", async () => {
  const absent = await runCli(["service", "print", "--prefix", "/nonexistent"]);
  assert.equal(absent.code, 3);
  assert.match(absent.stderr, /no built forkd at \/nonexistent/);
  const odd = await runCli(["service", "print", "--prefix", "/tmp/a b%"]);
  assert.equal(odd.code, 2);
});
