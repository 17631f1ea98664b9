import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Scope } from "@forkd/base";
import { loadConfig } from "../../src/settings/load.ts";
import { temporaryDir } from "../support.ts";

test("loadConfig() prefers flags over environment over file over defaults", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const file = { pool_memory_percent: 1, max_sandboxes: 2, log_level: "warn" };
  await writeFile(join(dir, "config.json"), JSON.stringify(file));
  const env = {
    FORKD_DATA_DIR: dir,
    FORKD_MAX_SANDBOXES: "3",
    FORKD_POOL_MEMORY_PERCENT: "4",
    FORKD_LISTEN: "",
  };
  const { values, sources } = await loadConfig({ pool_memory_percent: 5 }, env);
  assert.deepEqual([values.pool_memory_percent, sources.pool_memory_percent], [5, "flag"]);
  assert.deepEqual([values.max_sandboxes, sources.max_sandboxes], [3, "environment"]);
  assert.deepEqual([values.log_level, sources.log_level], ["warn", "file"]);
  assert.deepEqual([values.listen, sources.listen], ["127.0.0.1:8889", "default"]);
  assert.deepEqual([values.data_dir, sources.data_dir], [dir, "environment"]);
});

test("loadConfig() puts the socket in the runtime directory by default", async () => {
  const { values } = await loadConfig({ runtime_dir: "/r" }, { FORKD_DATA_DIR: "/nowhere" });
  assert.equal(values.socket, "/r/forkd.sock");
  const other = await loadConfig(
    {},
    { FORKD_DATA_DIR: "/nowhere", FORKD_SOCKET: "/s/x.sock", FORKD_RUNTIME_DIR: "/x/forkd" },
  );
  assert.equal(other.values.socket, "/s/x.sock");
  assert.equal(other.values.runtime_dir, "/x/forkd");
});

test("loadConfig() names the setting, the rule and the source", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await assert.rejects(
    loadConfig({ data_dir: dir }, { FORKD_LISTEN: "everywhere:80" }),
    /listen \(from environment\): must be/,
  );
  await writeFile(join(dir, "config.json"), JSON.stringify({ pools: 1 }));
  await assert.rejects(loadConfig({ data_dir: dir }, {}), /pools \(from file\): is not a known field/);
  await writeFile(join(dir, "config.json"), "[]");
  await assert.rejects(loadConfig({ data_dir: dir }, {}), /must hold one JSON object/);
});

test("loadConfig() refuses a public address without token or TLS, and names the remedy", async () => {
  const data = { FORKD_DATA_DIR: "/nowhere" };
  const load = (env: Record<string, string>) => loadConfig({}, { ...data, ...env });
  for (const listen of ["0.0.0.0:8889", "[::]:8889", "192.0.2.1:8889", "[2001:db8::1]:8889"]) {
    await assert.rejects(
      load({ FORKD_LISTEN: listen }),
      /listen: .*tls_cert and tls_key, or allow_plain_http=true/,
    );
    await assert.rejects(load({ FORKD_LISTEN: listen, FORKD_AUTH: "off" }), /auth: must not be "off"/);
    const off = { FORKD_LISTEN: listen, FORKD_AUTH: "off", FORKD_ALLOW_PLAIN_HTTP: "true" };
    await assert.rejects(load(off), /auth: must not be "off"/);
    await assert.rejects(load({ ...off, FORKD_TLS_CERT: "/c", FORKD_TLS_KEY: "/k" }), /auth/);
    assert.equal((await load({ FORKD_LISTEN: listen, FORKD_ALLOW_PLAIN_HTTP: "1" })).values.listen, listen);
    await load({ FORKD_LISTEN: listen, FORKD_TLS_CERT: "/c", FORKD_TLS_KEY: "/k" });
  }
  for (const listen of ["127.0.0.1:1", "127.8.8.8:1", "localhost:1", "[::1]:1", "off"])
    await load({ FORKD_LISTEN: listen, FORKD_AUTH: "off" });
  await assert.rejects(load({ FORKD_TLS_CERT: "/c" }), /tls_key: must be given too/);
  await assert.rejects(load({ FORKD_TLS_KEY: "/k" }), /tls_cert: must be given too/);
  for (const listen of ["forkd.example:80", "0.0.0.0", "1.2.3.4:99999", ":80", "localhost:70000"])
    await assert.rejects(load({ FORKD_LISTEN: listen }), /listen \(from environment\): must be/, listen);
});

test("loadConfig() reads lists and booleans from text and from JSON", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const { values } = await loadConfig(
    { data_dir: dir },
    { FORKD_ALLOWED_HOSTS: "a.example, *.b:1,", FORKD_AUDIT_READS: "false", FORKD_AUDIT_LOG: "off" },
  );
  assert.deepEqual(values.allowed_hosts, ["a.example", "*.b:1"]);
  assert.deepEqual([values.audit_reads, values.audit_log], [false, "off"]);
  await writeFile(join(dir, "config.json"), JSON.stringify({ allowed_hosts: ["x"], audit_commands: true }));
  const fromFile = (await loadConfig({ data_dir: dir }, {})).values;
  assert.deepEqual([fromFile.allowed_hosts, fromFile.audit_commands], [["x"], true]);
  await assert.rejects(loadConfig({ data_dir: dir }, { FORKD_ALLOWED_HOSTS: "http://x" }), /allowed_hosts/);
  await assert.rejects(
    loadConfig({ data_dir: dir }, { FORKD_AUDIT_READS: "maybe" }),
    /audit_reads.*true or false/,
  );
});

test("loadConfig() accepts only default limits that a request may ask for", async () => {
  const data = { FORKD_DATA_DIR: "/tmp/none" };
  const load = (env: Record<string, string>) => loadConfig({}, { ...data, ...env });
  await assert.rejects(
    load({ FORKD_DEFAULT_DISK_LIMIT_MIB: "4" }),
    /default_disk_limit_mib.*at least 8 MiB, or 0/,
  );
  await assert.rejects(load({ FORKD_DEFAULT_MEMORY_LIMIT_MIB: "31" }), /at least 32 MiB/);
  const { values } = await load({ FORKD_DEFAULT_DISK_LIMIT_MIB: "8", FORKD_DEFAULT_CPU_PERCENT: "0" });
  assert.deepEqual([values.default_disk_limit_mib, values.default_cpu_percent], [8, 0]);
});

test("loadConfig() names a config.json that is a directory", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await mkdir(join(dir, "config.json"));
  await assert.rejects(
    loadConfig({ data_dir: dir }, {}),
    /Cannot open the settings in .*config\.json": it is a directory, not a file/,
  );
});
