import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { connect, findDaemon, readDaemonRecord } from "../src/node.ts";

test("findDaemon() prefers options, then variables, then the daemon's record, then the default", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-find-"));
  try {
    const env = { FORKD_DATA_DIR: dir, FORKD_RUNTIME_DIR: "/r" };
    assert.deepEqual(await findDaemon({}, env), { socket: "/r/forkd.sock" });
    assert.deepEqual(await findDaemon({}, { FORKD_DATA_DIR: dir, FORKD_RUNTIME_DIR: "/x/forkd" }), {
      socket: "/x/forkd/forkd.sock",
    });
    await writeFile(
      join(dir, "daemon.json"),
      JSON.stringify({ pid: 1, socket: "/d/forkd.sock", url: "http://127.0.0.1:8889" }),
    );
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
    await writeFile(join(dir, "daemon.json"), '{"socket": "/d');
    assert.deepEqual(await findDaemon({}, env), { socket: "/r/forkd.sock" }, "a damaged record is ignored");
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("findDaemon() uses the token of the local daemon for no other machine", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-find-"));
  try {
    const env = { FORKD_DATA_DIR: dir };
    await writeFile(join(dir, "token"), "from-file\n");
    await writeFile(join(dir, "named"), "from-named\n");
    const far = "https://forkd.example:8889";
    assert.deepEqual(await findDaemon({ url: far }, env), { url: far, token: undefined });
    assert.deepEqual(await findDaemon({ url: far }, { ...env, FORKD_TOKEN: "t" }), { url: far, token: "t" });
    // No record says that this port belongs to the daemon.
    const near = "http://127.0.0.1:8889";
    assert.deepEqual(await findDaemon({ url: near }, env), { url: near, token: undefined });
    await writeFile(join(dir, "daemon.json"), JSON.stringify({ url: near }));
    for (const url of [near, "http://localhost:8889", "https://[::1]:8889/"])
      assert.deepEqual(await findDaemon({ url }, env), { url, token: "from-file" });
    for (const url of ["http://127.0.0.1:8890", "http://localhost", "https://127.0.0.1.example:8889"])
      assert.deepEqual(await findDaemon({ url }, env), { url, token: undefined });
    const record = { url: far, token_file: join(dir, "named") };
    await writeFile(join(dir, "daemon.json"), JSON.stringify(record));
    assert.deepEqual(await findDaemon({ url: far }, env), { url: far, token: "from-named" });
    assert.deepEqual(await findDaemon({ url: "https://forkd.example" }, env), {
      url: "https://forkd.example",
      token: undefined,
    });
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("findDaemon() reads FORKD_CA for https and refuses invalid addresses", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-find-"));
  try {
    const ca = join(dir, "ca.pem");
    await writeFile(ca, "PEM");
    const env = { FORKD_DATA_DIR: dir, FORKD_CA: ca, FORKD_TOKEN: "t" };
    const url = "https://forkd.example";
    assert.deepEqual(await findDaemon({ url }, env), { url, token: "t", ca: "PEM" });
    const plain = "http://127.0.0.1:1";
    assert.deepEqual(await findDaemon({ url: plain }, env), { url: plain, token: "t" });
    await assert.rejects(findDaemon({ url }, { ...env, FORKD_CA: join(dir, "none") }), {
      message: /there is no file .*none$/,
      remedy: { action: "advice", text: "Set FORKD_CA or `caFile` to a PEM file." },
    });
    for (const bad of ["127.0.0.1:8889", "forkd.example", "ftp://x", ""])
      await assert.rejects(findDaemon({ url: bad }, env), { code: "invalid_request" }, bad);
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("findDaemon() does not wait for a FIFO in place of the record", { timeout: 60_000 }, async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-find-"));
  try {
    execFileSync("mkfifo", [join(dir, "daemon.json")]);
    // It holds no record; whether that is an error does not matter here.
    await findDaemon({ dataDir: dir }, {}).catch(() => undefined);
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("readDaemonRecord() reports a record that cannot be read and follows no link", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-record-"));
  const file = join(dir, "daemon.json");
  try {
    assert.deepEqual(await readDaemonRecord(dir), { file, record: {} });
    for (const [content, problem] of [
      ["", /JSON/],
      ['{"socket": "/d', /JSON/],
      ["null", /not a JSON object/],
      ["x".repeat(70_000), /more than/],
    ] as const) {
      await writeFile(file, content);
      const found = await readDaemonRecord(dir);
      assert.deepEqual(found.record, {});
      assert.match(found.problem ?? "", problem);
    }
    await rm(file);
    await writeFile(join(dir, "elsewhere"), JSON.stringify({ socket: "/planted" }));
    await symlink("elsewhere", file);
    assert.match((await readDaemonRecord(dir)).problem ?? "", /ELOOP/);
    await rm(file);
    await mkdir(file);
    assert.match((await readDaemonRecord(dir)).problem ?? "", /not a regular file/);
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("connect() refuses a daemon whose data directory is another one, before it asks for anything", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-other-"));
  const asked: string[] = [];
  const socket = join(dir, "forkd.sock");
  const server = http.createServer((incoming, outgoing) => {
    asked.push(`${incoming.method} ${incoming.url}`);
    outgoing.setHeader("content-type", "application/json");
    outgoing.end(JSON.stringify(incoming.url === "/v1/status" ? { data_dir: dir } : { killed: [] }));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const before = { ...process.env };
  try {
    delete process.env["FORKD_SOCKET"];
    delete process.env["FORKD_URL"];
    process.env["FORKD_RUNTIME_DIR"] = dir;
    const other = join(dir, "other");
    await assert.rejects((await connect({ dataDir: other })).call("killAll", {}), {
      code: "other_daemon",
      remedy: { action: "use_own_places" },
    });
    process.env["FORKD_DATA_DIR"] = other;
    await assert.rejects((await connect()).call("killAll", {}), { code: "other_daemon" });
    assert.deepEqual(new Set(asked), new Set(["GET /v1/status"]));
    await symlink(dir, other);
    const same = await connect();
    await same.call("killAll", {});
    await same.call("killAll", {});
    assert.deepEqual(asked.slice(-3), ["GET /v1/status", "DELETE /v1/sandboxes", "DELETE /v1/sandboxes"]);
  } finally {
    process.env = before;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(dir, { recursive: true });
  }
});
