import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runCli } from "../run-cli.ts";

const root = fileURLToPath(new URL("../../../../../", import.meta.url)).replace(/\/$/, "");

test("service print inserts the paths of the tree and of Node", async () => {
  const { code, stdout, stderr } = await runCli(["service", "print"]);
  assert.equal(code, 0, stderr);
  assert.ok(stdout.includes(`\nExecStart=${process.execPath} ${root}/packages/cli/dist/src/main.js serve\n`));
  assert.ok(!stdout.includes("/opt/forkd") || root === "/opt/forkd");
  assert.match((await runCli(["service", "print", "--user"])).stdout, /WantedBy=default\.target/);
});

test("service install writes the units once, --dry-run nothing, uninstall removes them", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  t.after(() => rm(dir, { recursive: true }));
  const names = ["forkd.service", "forkd-machines.service"];
  const units = names.map((name) => join(dir, name));
  const told = (what: string) => units.map((unit) => `${what} ${unit}\n`).join("");
  const dry = await runCli(["service", "install", "--dir", dir, "--dry-run"]);
  assert.deepEqual([dry.code, dry.stdout], [0, told("would: write")], dry.stderr);
  assert.deepEqual(await readdir(dir), []);
  assert.equal((await runCli(["service", "install", "--dir", dir])).stdout, told("write"));
  const again = await runCli(["service", "install", "--dir", dir]);
  assert.deepEqual([again.stdout, again.stderr], ["", `${units.join(" and ")} are up to date.\n`]);
  for (const [nth, name] of names.entries())
    assert.equal(await readFile(units[nth] ?? "", "utf8"), (await runCli(["service", "print", name])).stdout);
  const gone = JSON.parse((await runCli(["service", "uninstall", "--dir", dir, "--json"])).stdout) as object;
  const steps = units.map((unit) => `remove ${unit}`);
  assert.deepEqual(gone, { path: units[0], changed: true, steps, dry_run: false });
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
