/** Files of any size: atomic writes, permissions, errors. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
let sandbox: Sandbox;
before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
  sandbox = await daemon.forkd.create("tiny");
});
after(() => daemon[Symbol.asyncDispose]());

test("write() creates parent directories and sets the mode; read() returns the bytes", async () => {
  const entry = await sandbox.files.write("/tmp/a/b/c.txt", "text\n", { mode: "0640" });
  assert.deepEqual([entry.size, entry.mode.slice(-3), entry.type], [5, "640", "file"]);
  assert.equal(await sandbox.files.readText("/tmp/a/b/c.txt"), "text\n");
  await sandbox.files.write("/tmp/a/b/c.txt", "more\n", { append: true });
  assert.equal(await sandbox.files.readText("/tmp/a/b/c.txt"), "text\nmore\n");
  let part = "";
  for await (const bytes of sandbox.files.readStream("/tmp/a/b/c.txt", { offset: 5, limit: 2 }))
    part += Buffer.from(bytes).toString();
  assert.equal(part, "mo");
});

test("a streamed file of 24 MiB is read back unchanged", async () => {
  const content = randomBytes(24 * 1024 * 1024);
  const sha = createHash("sha256").update(content).digest("hex");
  async function* pieces() {
    for (let at = 0; at < content.length; at += 100_000) yield content.subarray(at, at + 100_000);
  }
  await sandbox.files.write("/root/large", pieces());
  assert.equal((await sh(sandbox, "sha256sum /root/large")).split(" ")[0], sha);
  const back = await sandbox.files.read("/root/large");
  assert.equal(createHash("sha256").update(back).digest("hex"), sha);
  await sandbox.files.remove("/root/large");
});

test("an aborted write changes nothing", async () => {
  await sandbox.files.write("/tmp/kept", "old");
  const abort = new AbortController();
  async function* endless() {
    for (let i = 0; ; i++) {
      if (i === 20) abort.abort();
      yield new Uint8Array(65536);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  await assert.rejects(sandbox.files.write("/tmp/kept", endless(), { signal: abort.signal }));
  await until(
    "the partial file is removed",
    async () => (await sh(sandbox, "ls -A /tmp | grep -v -e kept -e '^a$' | wc -l")) === "0",
  );
  assert.equal(await sandbox.files.readText("/tmp/kept"), "old");
});

test("list(), stat(), mkdir(), move(), remove() and chmod() work on files and directories", async () => {
  const { files } = sandbox;
  await files.mkdir("/tmp/d/e");
  await files.write("/tmp/d/f", "x");
  await sh(sandbox, "cd /tmp/d && ln -s f link");
  const entries = await files.list("/tmp/d");
  assert.deepEqual(
    entries.map(({ name, type }) => `${name}:${type}`),
    ["e:directory", "f:file", "link:symlink"],
  );
  assert.equal(entries[2]?.target, "f");
  assert.equal((await files.stat("/tmp/d/link")).type, "symlink");
  await files.move("/tmp/d/f", "/tmp/other/g");
  assert.equal(await files.readText("/tmp/other/g"), "x");
  await files.chmod("/tmp/other/g", "0600");
  assert.equal((await files.stat("/tmp/other/g")).mode.slice(-3), "600");
  await rejectsWith(files.remove("/tmp/d"), "guest_refused", /not empty|directory/i);
  await files.remove("/tmp/d", { recursive: true });
  await rejectsWith(files.stat("/tmp/d"), "file_not_found");
});

test("errors name the path and the reason", async () => {
  const { files } = sandbox;
  await rejectsWith(files.read("/tmp/missing"), "file_not_found", /missing/);
  await rejectsWith(files.read("relative"), "invalid_request", /path/);
  await rejectsWith(files.list("/etc/passwd"), "guest_refused");
  await rejectsWith(files.write("/proc/nope/x", "x"), "file_not_found");
  await files.write("/tmp/private", "secret", { mode: "0600" });
  await rejectsWith(files.read("/tmp/private", { user: "user" }), "guest_refused", /denied/i);
});

test("write() fails with disk_full when the guest's disk is full, and keeps the old file", async () => {
  await sandbox.files.write("/root/kept", "old");
  const content = (async function* () {
    for (let i = 0; i < 1600; i++) yield new Uint8Array(65536).fill(i);
  })();
  await rejectsWith(sandbox.files.write("/root/kept", content), "disk_full");
  assert.equal(await sandbox.files.readText("/root/kept"), "old");
});
