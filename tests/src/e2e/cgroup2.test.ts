/**
 * Control groups of version 2 on a real kernel: that of a guest. The code of the daemon is put into a sandbox and run there, in groups
 * as a service manager makes them.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { repository } from "../support/places.ts";
import { sh } from "../support/sandboxes.ts";

/** What the driver needs of the packages, and no more. */
const parts = {
  base: ["atomic-file"],
  machine: [
    "host/procfs",
    "host/cgroup/cgroups",
    "host/cgroup/delegation",
    "host/cgroup/group",
    "host/cgroup/hierarchies",
  ],
};
const driver = "/root/driver";

let daemon: TestDaemon;
let guest: Sandbox;

before(async () => {
  daemon = await startDaemon({ snapshots: ["node"] });
  guest = await daemon.forkd.forkOne("node");
  const write = async (path: string, text: string) => guest.files.write(join(driver, path), text);
  for (const [name, files] of Object.entries(parts)) {
    const home = join("node_modules/@forkd", name);
    for (const file of files)
      await write(
        join(home, `${file}.js`),
        await readFile(join(repository, "packages", name, "dist/src", `${file}.js`), "utf8"),
      );
    await write(join(home, "index.js"), files.map((file) => `export * from "./${file}.js";\n`).join(""));
    await write(join(home, "package.json"), JSON.stringify({ type: "module", exports: "./index.js" }));
  }
  await write("main.mjs", await readFile(join(repository, "tests/dist/support/in-guest-groups.js"), "utf8"));
  // As a service manager has it: every controller for the groups of services, and a group for each.
  await sh(
    guest,
    "cd /sys/fs/cgroup && echo +memory +cpu +pids > cgroup.subtree_control && mkdir unit service machines shared",
  );
});
after(() => daemon[Symbol.asyncDispose]());

/** Runs a function of the driver in the guest; rejects with what it threw. */
async function run(name: string): Promise<void> {
  const code = `await (await import("${driver}/main.mjs")).${name}(); "held"`;
  const { result, error, stderr } = await guest.eval(code, { language: "node", timeoutSecs: 300 });
  assert.equal(result, "'held'", `${JSON.stringify(error, undefined, 2)}${stderr}`);
}

test("below its own group a daemon holds machines to every limit, and the next one takes them up", () =>
  run("own"));

test("with a group for machines alone a daemon starts where it started before, while machines live", () =>
  run("given"));

test("a group that others are in too is left as it was, with the reason", () => run("shared"));

test("a group that can hold only threads is a reason too", () => run("refused"));
