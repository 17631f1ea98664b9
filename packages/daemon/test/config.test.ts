import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Scope } from "@forkd/base";
import { loadConfig } from "../src/config.ts";
import { temporaryDir } from "./support.ts";

test("loadConfig() prefers flags over environment over file over defaults", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const file = { pool_size: 1, max_sandboxes: 2, log_level: "warn" };
  await writeFile(join(dir, "config.json"), JSON.stringify(file));
  const env = { FORKD_DATA_DIR: dir, FORKD_MAX_SANDBOXES: "3", FORKD_POOL_SIZE: "4", FORKD_LISTEN: "" };
  const { values, sources } = await loadConfig({ pool_size: 5 }, env);
  assert.deepEqual([values.pool_size, sources.pool_size], [5, "flag"]);
  assert.deepEqual([values.max_sandboxes, sources.max_sandboxes], [3, "environment"]);
  assert.deepEqual([values.log_level, sources.log_level], ["warn", "file"]);
  assert.deepEqual([values.listen, sources.listen], ["127.0.0.1:8889", "default"]);
  assert.deepEqual([values.data_dir, sources.data_dir], [dir, "environment"]);
});

test("loadConfig() puts the socket into the runtime directory unless told", async () => {
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
