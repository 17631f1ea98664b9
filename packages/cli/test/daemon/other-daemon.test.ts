/** Verbs that look for a daemon where there is none, or where one does not answer. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { connect } from "@forkd/sdk/node";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { isHealthy } from "../../src/daemon/health.ts";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

/** Far below the time in which a start would be given up. */
const soon = { timeout: 50_000 };

for (const verb of [["ls"], ["up"]]) {
  test(`forkd ${verb.join(" ")} with a wrong FORKD_SOCKET names the right one`, soon, async (t) => {
    await using daemon = await openFakeDaemon({});
    const dataDir = await temporaryDirectory(t);
    const record = { pid: process.pid, socket: daemon.socket };
    await writeFile(join(dataDir, "daemon.json"), JSON.stringify(record));
    const { code, stderr } = await runCli(verb, { env: { FORKD_DATA_DIR: dataDir } });
    assert.equal(code, 8, stderr);
    assert.match(stderr, /No daemon listens on "\/nonexistent\/s"/);
    assert.ok(stderr.includes(`Set FORKD_SOCKET to ${daemon.socket}.`), stderr);
  });
}

test("isHealthy() throws when something listens but does not answer", async (t) => {
  const socket = join(await temporaryDirectory(t), "s");
  const server = createServer(() => undefined).listen(socket);
  t.after(() => server.close());
  const forkd = await connect({ socket });
  const { signal } = new AbortController();
  await rejectsWith(isHealthy(forkd, signal, 50), "daemon_unreachable", /does not answer within/);
  assert.equal(await isHealthy(await connect({ socket: `${socket}-none` }), signal), false);
});

test("forkd up does not wait for a FIFO in place of the token", soon, async (t) => {
  const dataDir = await temporaryDirectory(t);
  execFileSync("mkfifo", [join(dataDir, "token")]);
  const env = { FORKD_DATA_DIR: dataDir, FORKD_RUNTIME_DIR: join(dataDir, "run"), FORKD_SOCKET: "" };
  const { code, stderr } = await runCli(["up"], { env });
  assert.equal(code, 8, stderr);
  assert.match(stderr, /token": it is a pipe, not a regular file/);
});
