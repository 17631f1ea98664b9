/** Keys, scopes and the audit log of a real daemon with a real sandbox. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect } from "@forkd/sdk/node";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until } from "@forkd/test-support";

let daemon: TestDaemon;
let url: string;

before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"], env: { FORKD_LISTEN: "127.0.0.1:0" } });
  const record = JSON.parse(await readFile(join(daemon.dataDir, "daemon.json"), "utf8")) as { url: string };
  url = record.url;
});
after(() => daemon[Symbol.asyncDispose]());

async function lines(name = "audit.jsonl"): Promise<Record<string, unknown>[]> {
  return (await readFile(join(daemon.dataDir, name), "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

test("a key owns its sandboxes, its removal ends its open calls, and the audit log has all of it", async () => {
  const reader = await daemon.forkd.keys.create("reader", { scope: "read" });
  const runner = await daemon.forkd.keys.create("runner", { scope: "run", maxSandboxes: 5 });
  const asReader = await connect({ url, token: reader.key });
  const asRunner = await connect({ url, token: runner.key });

  await assert.rejects(asReader.create("tiny"), { code: "forbidden" });
  await assert.rejects(asRunner.keys.create("more"), { code: "forbidden" });
  const sandbox = await asRunner.create("tiny");
  assert.equal(sandbox.info.owner, "runner");
  assert.equal((await asReader.sandboxes.list().all())[0]?.info.owner, "runner");
  await assert.rejects((await asReader.sandboxes.get(sandbox.id)).commands.run(["true"]), {
    code: "forbidden",
  });

  const command = await sandbox.commands.start(["sleep", "1000"]);
  const lost = assert.rejects(command.wait(), { code: "unauthenticated" });
  await daemon.forkd.keys.remove("runner");
  await lost;
  await assert.rejects(asRunner.sandboxes.list().all(), { code: "unauthenticated" });

  const own = await daemon.forkd.sandboxes.get(sandbox.id);
  await own.kill();
  // The daemon writes audit lines after it has answered.
  let written: Record<string, unknown>[] = [];
  await until("the audit log has the kill and the ended command", async () => {
    written = await lines();
    return (
      written.some(({ route }) => route === "kill") &&
      written.some(({ route, code }) => route === "exec" && code === "unauthenticated")
    );
  });
  const forked = written.find(({ route, status }) => route === "fork" && status === 201);
  assert.deepEqual(
    [forked?.["principal"], forked?.["objects"]],
    ["runner", { sandboxes: [sandbox.id], snapshots: ["tiny"] }],
  );
  const exec = written.find(({ route, code }) => route === "exec" && code === "unauthenticated");
  assert.equal(
    exec?.["argv_sha256"],
    createHash("sha256").update(["sleep", "1000"].join("\0")).digest("hex"),
  );
  assert.deepEqual([exec?.["principal"], exec?.["status"]], ["runner", 200]);
  assert.ok(!JSON.stringify(written).includes(runner.key));
});

test("SIGHUP makes the daemon write the audit log to a new file after rotation", async () => {
  const file = join(daemon.dataDir, "audit.jsonl");
  await rename(file, `${file}.1`);
  daemon.process.kill("SIGHUP");
  await until("the daemon has handled the signal", () => daemon.log().includes('"daemon.hangup"'));
  await daemon.forkd.status();
  const status = await daemon.forkd.status();
  assert.deepEqual(status.audit, { ok: true, dropped: 0 });
  daemon.process.kill("SIGTERM");
  await once(daemon.process, "exit");
  assert.deepEqual(
    (await lines()).map(({ route, event }) => route ?? event),
    ["status", "status", "daemon.stop"],
  );
  assert.equal((await lines("audit.jsonl.1"))[0]?.["event"], "daemon.start");
});
