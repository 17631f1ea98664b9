/**
 * Control groups of version 2 on a real kernel, the kernel of a guest. The daemon's code is copied into a
 * sandbox and runs there, in groups like those that a service manager makes.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { closureOf } from "../support/closure.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { repository } from "../support/places.ts";
import { sh } from "../support/sandboxes.ts";

const driver = "/root/driver";

let daemon: TestDaemon;
let guest: Sandbox;

before(async () => {
  daemon = await startDaemon({ snapshots: ["node"] });
  guest = await daemon.forkd.create("node");
  const write = async (path: string, text: string) => guest.files.write(join(driver, path), text);
  const main = await readFile(join(repository, "tests/dist/support/in-guest-groups.js"), "utf8");
  for (const [name, modules] of await closureOf(main)) {
    const home = join("node_modules/@forkd", name);
    for (const { file, text } of modules.values()) await write(join(home, file), text);
    const exports = [...modules.values()].filter(({ names }) => names.size > 0);
    await write(
      join(home, "index.js"),
      exports.map(({ file, names }) => `export { ${[...names].join(", ")} } from "./${file}";\n`).join(""),
    );
    await write(join(home, "package.json"), JSON.stringify({ type: "module", exports: "./index.js" }));
  }
  await write("main.mjs", main);
  // Like a service manager: all controllers are enabled for services, and each service has a group.
  await sh(
    guest,
    "cd /sys/fs/cgroup && echo +memory +cpu +pids > cgroup.subtree_control && mkdir unit service machines shared",
  );
});
after(() => daemon[Symbol.asyncDispose]());

/** Runs a function of the driver in the guest; fails with the error that it throws. */
async function run(name: string): Promise<void> {
  const code = `await (await import("${driver}/main.mjs")).${name}(); "held"`;
  const { result, error, stderr } = await guest.eval(code, { language: "node", timeoutMs: 300_000 });
  assert.equal(result, "'held'", `${JSON.stringify(error, undefined, 2)}${stderr}`);
}

test("a daemon limits machines below its own group, and the next daemon adopts them", () => run("own"));

test("with a separate group for machines, a daemon restarts in its own group while machines run", () =>
  run("given"));

test("a group that holds other processes stays unchanged, and the daemon reports the reason", () =>
  run("shared"));

test("a threaded group cannot hold machines, and the daemon reports the reason", () => run("refused"));
