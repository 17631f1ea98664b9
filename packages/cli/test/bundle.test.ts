import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { execFile } from "node:child_process";
import { isOutside } from "../src/bundle/outside.ts";

const bundle = fileURLToPath(new URL("../bundle/forkd.cjs", import.meta.url));

/** A tree with the bundle of another version, and with modules that only print that they ran. */
class Tree implements Disposable {
  readonly dir = mkdtempSync(join(tmpdir(), "forkd-bundle-"));

  constructor() {
    this.write("packages/cli/package.json", '{ "type": "module", "version": "9.8.7" }');
    this.write("packages/cli/dist/src/main.js", 'console.log("modules", ...process.argv.slice(2));');
    mkdirSync(join(this.dir, "packages/cli/dist/bundle"));
    copyFileSync(bundle, join(this.dir, "packages/cli/dist/bundle/forkd.cjs"));
  }

  write(name: string, text: string, ageSecs = 0): void {
    const path = join(this.dir, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    const time = Date.now() / 1000 - ageSecs;
    utimesSync(path, time, time);
  }

  async forkd(...args: string[]): Promise<string> {
    const program = join(this.dir, "packages/cli/dist/bundle/forkd.cjs");
    return (await promisify(execFile)(process.execPath, [program, ...args])).stdout;
  }

  [Symbol.dispose](): void {
    rmSync(this.dir, { recursive: true });
  }
}

test("the bundle needs no modules, and modules in it find files relative to themselves", async () => {
  using tree = new Tree();
  assert.equal(await tree.forkd("--version"), "forkd 9.8.7\n");
});

test("the bundle runs the modules if one of its packages was compiled after it", async () => {
  using tree = new Tree();
  for (const name of ["cli", "sdk", "contract"])
    tree.write(`packages/${name}/dist/tsconfig.tsbuildinfo`, "", 3600);
  assert.equal(await tree.forkd("--version"), "forkd 9.8.7\n");
  for (const name of ["cli", "sdk", "contract"]) {
    tree.write(`packages/${name}/dist/tsconfig.tsbuildinfo`, "", -3600);
    assert.equal(await tree.forkd("--version"), "modules --version\n");
    tree.write(`packages/${name}/dist/tsconfig.tsbuildinfo`, "", 3600);
  }
});

test("the bundle runs the modules for verbs that need the daemon's package", async () => {
  using tree = new Tree();
  assert.equal(await tree.forkd("config", "show"), "modules config show\n");
  for (const argv of [
    ["serve"],
    ["help", "mcp"],
    ["--json", "doctor"],
    ["logs", "--daemon"],
    ["__complete", "--", "config", "get", ""],
  ])
    assert.ok(isOutside(argv), argv.join(" "));
  for (const argv of [[], ["ls"], ["logs", "sb-1"], ["__complete", "--", "fork", ""]])
    assert.ok(!isOutside(argv), argv.join(" "));
});
