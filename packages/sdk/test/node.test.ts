import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { findDaemon } from "../src/node.ts";

test("findDaemon() prefers options, then variables, then the daemon's record, then the default", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-find-"));
  try {
    const env = { FORKD_DATA_DIR: dir, FORKD_RUNTIME_DIR: "/r" };
    assert.deepEqual(await findDaemon({}, env), { socket: "/r/forkd.sock" });
    assert.deepEqual(await findDaemon({}, { FORKD_DATA_DIR: dir, FORKD_RUNTIME_DIR: "/x/forkd" }), {
      socket: "/x/forkd/forkd.sock",
    });
    await writeFile(join(dir, "daemon.json"), JSON.stringify({ pid: 1, socket: "/d/forkd.sock" }));
    assert.deepEqual(await findDaemon({}, env), { socket: "/d/forkd.sock" });
    assert.deepEqual(await findDaemon({ dataDir: dir }, { FORKD_SOCKET: "/e" }), { socket: "/d/forkd.sock" });
    await writeFile(join(dir, "token"), "from-file\n");
    const url = "http://127.0.0.1:8889";
    assert.deepEqual(await findDaemon({}, { ...env, FORKD_URL: url }), { url, token: "from-file" });
    assert.deepEqual(await findDaemon({}, { ...env, FORKD_URL: url, FORKD_TOKEN: "t" }), { url, token: "t" });
    assert.deepEqual(await findDaemon({}, { ...env, FORKD_URL: url, FORKD_SOCKET: "/e" }), { socket: "/e" });
    assert.deepEqual(await findDaemon({ url, token: "o" }, { ...env, FORKD_SOCKET: "/e" }), {
      url,
      token: "o",
    });
    assert.deepEqual(await findDaemon({ socket: "/o" }, env), { socket: "/o" });
  } finally {
    await rm(dir, { recursive: true });
  }
});
