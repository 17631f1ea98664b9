import assert from "node:assert/strict";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { Scope } from "@forkd/base";
import { describeSettings, requireSetting, setSettings, unsetSettings } from "../../src/settings/edit.ts";
import { loadConfig } from "../../src/settings/load.ts";
import { settingNames } from "../../src/settings/table.ts";
import { temporaryDir } from "../support.ts";

test("every setting has a meaning, a range and a variable", async () => {
  const settings = describeSettings(await loadConfig({}, { FORKD_DATA_DIR: "/nowhere" }));
  assert.deepEqual(
    settings.map(({ name }) => name),
    settingNames,
  );
  for (const { name, meaning, allowed, variable } of settings) {
    assert.notEqual(meaning, "", name);
    assert.notEqual(allowed, "", name);
    assert.equal(variable, `FORKD_${name.toUpperCase()}`);
  }
  const byName = new Map(settings.map((each) => [each.name, each]));
  assert.equal(byName.get("accelerator")?.allowed, "auto, kvm or tcg");
  assert.equal(byName.get("pool_memory_percent")?.allowed, "0 to 90 percent");
  assert.equal(byName.get("data_dir")?.source, "environment");
});

test("setSettings() writes a typed value and keeps the others; unsetSettings() removes it", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const env = { FORKD_DATA_DIR: join(dir, "data") };
  const file = join(dir, "data", "config.json");
  await setSettings([["log_level", "debug"]], env);
  const [change] = await setSettings([["FORKD_MAX_SANDBOXES", "7"]], env);
  assert.deepEqual([change?.name, change?.value, change?.file], ["max_sandboxes", 7, file]);
  assert.deepEqual(JSON.parse(await readFile(file, "utf8")), { log_level: "debug", max_sandboxes: 7 });
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  assert.equal((await loadConfig({}, env)).values.max_sandboxes, 7);
  await unsetSettings(["max_sandboxes"], env);
  assert.deepEqual(JSON.parse(await readFile(file, "utf8")), { log_level: "debug" });
});

test("settings that are valid only together are set and unset together", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const env = { FORKD_DATA_DIR: dir };
  const pair = [
    ["tls_cert", join(dir, "cert.pem")],
    ["tls_key", join(dir, "key.pem")],
  ] as const;
  await assert.rejects(setSettings(pair.slice(0, 1), env), /tls_key: must be given too/);
  await assert.rejects(setSettings([...pair, ["pool_memory_percent", "many"]], env), /pool_memory_percent/);
  await assert.rejects(setSettings([...pair, pair[0]], env), /given twice/);
  await assert.rejects(stat(join(dir, "config.json")), { code: "ENOENT" });
  await setSettings(pair, env);
  assert.deepEqual(JSON.parse(await readFile(join(dir, "config.json"), "utf8")), Object.fromEntries(pair));
  await assert.rejects(unsetSettings(["tls_key"], env), /tls_key: must be given too/);
  await unsetSettings(["tls_key", "tls_cert"], env);
  assert.equal((await loadConfig({}, env)).values.tls_cert, undefined);
});

test("setSettings() reports that a variable overrides the file", async () => {
  await using scope = new Scope();
  const env = { FORKD_DATA_DIR: await temporaryDir(scope), FORKD_POOL_MEMORY_PERCENT: "3" };
  const [{ value, effective } = assert.fail()] = await setSettings([["pool_memory_percent", "9"]], env);
  assert.deepEqual([value, effective?.value, effective?.source], [9, 3, "environment"]);
});

test("setSettings() names an invalid setting and does not write the file", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const env = { FORKD_DATA_DIR: dir };
  const refused = async (run: Promise<unknown>, message: RegExp) =>
    assert.rejects(run, (error: { code?: string; message: string }) => {
      assert.equal(error.code, "invalid_request");
      assert.match(error.message, message);
      return true;
    });
  await refused(
    setSettings([["pool_memory_percent", "many"]], env),
    /Cannot set pool_memory_percent to "many"/,
  );
  await refused(setSettings([["pool_memory_percent", "1001"]], env), /pool_memory_percent/);
  await refused(setSettings([["accelerator", "warp"]], env), /accelerator/);
  await refused(setSettings([["data_dir", "/x"]], env), /data_dir in config\.json/);
  await refused(setSettings([["frobs", "1"]], env), /no setting "frobs"/);
  assert.throws(() => requireSetting("frobs"), /frobs/);
  await assert.rejects(stat(join(dir, "config.json")), { code: "ENOENT" });
});

test("unsetSettings() and setSettings() repair a file that keeps the daemon from starting", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const env = { FORKD_DATA_DIR: dir };
  await writeFile(join(dir, "config.json"), '{"frobs": 1, "pool_memory_percent": 2}');
  await assert.rejects(loadConfig({}, env), /frobs/);
  await assert.rejects(setSettings([["pool_memory_percent", "3"]], env), /frobs/);
  const [change] = await unsetSettings(["frobs"], env);
  assert.deepEqual([change?.name, change?.effective], ["frobs", undefined]);
  assert.equal((await loadConfig({}, env)).values.pool_memory_percent, 2);
  await writeFile(join(dir, "config.json"), '{"pool_memory_percent": -2}');
  await setSettings([["pool_memory_percent", "3"]], env);
  assert.equal((await loadConfig({}, env)).values.pool_memory_percent, 3);
});

test("setSettings() refuses what a daemon without the variables of this environment could not start with", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const file = join(dir, "config.json");
  const env = { FORKD_DATA_DIR: dir, FORKD_LISTEN: "127.0.0.1:8899" };
  await assert.rejects(
    setSettings([["listen", "0.0.0.0:8899"]], env),
    /would not start.*listen: other machines/s,
  );
  await assert.rejects(stat(file), { code: "ENOENT" });
  await setSettings([["listen", "off"]], env);
  // A file that is not valid already can be repaired.
  await writeFile(file, JSON.stringify({ listen: "0.0.0.0:8899", auth: "off" }));
  await unsetSettings(["auth"], env);
  await unsetSettings(["listen"], env);
  assert.deepEqual(JSON.parse(await readFile(file, "utf8")), {});
});
