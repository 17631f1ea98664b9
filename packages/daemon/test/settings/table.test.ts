import assert from "node:assert/strict";
import { test } from "node:test";
import { count, runtimeConfig, runtimeSetting, runtimeSettings, setting, type Setting } from "@forkd/runtime";
import { z } from "zod";
import { describeSettings } from "../../src/settings/edit.ts";
import { loadConfig } from "../../src/settings/load.ts";
import { flagsOf, settingTable, withoutSecrets } from "../../src/settings/table.ts";

const env = { FORKD_DATA_DIR: "/nowhere" };
const entries = Object.entries<Setting>(settingTable);

test("every entry yields a value, a default, a variable and a row of the documentation", async () => {
  const config = await loadConfig({}, env);
  const rows = new Map(describeSettings(config, env).map((row) => [row.name, row]));
  assert.deepEqual([...rows.keys()], Object.keys(settingTable));
  for (const [name, entry] of entries) {
    const row = rows.get(name) ?? assert.fail(name);
    assert.match(row.meaning, /^[A-Z].*\.$/, name);
    assert.doesNotMatch(row.meaning, /\|/, `${name}: a row of the documentation is one line of a table`);
    assert.notEqual(row.allowed, "", name);
    if (entry.unit) assert.match(row.allowed, new RegExp(` ${entry.unit}$`), name);
    assert.equal(row.variable, `FORKD_${name.toUpperCase()}`);
    const hasDefault = row.default !== null || entry.usually !== undefined;
    assert.ok(
      hasDefault || entry.schema.safeParse(undefined).success,
      `${name} has a default or is optional`,
    );
  }
});

test("names of units and the unit of an entry agree", () => {
  const units = { _mib: "MiB", _secs: "seconds", _days: "days", _percent: "percent" };
  for (const [name, { unit }] of entries) {
    const [, expected] = Object.entries(units).find(([ending]) => name.endsWith(ending)) ?? [];
    assert.equal(unit, expected, name);
  }
});

test("flagsOf() derives the flags of `forkd serve` in the order of the table", () => {
  const withFlag = entries.filter(([, { flag }]) => flag !== undefined).map(([name]) => name);
  assert.deepEqual(
    flagsOf().map(({ name }) => name),
    withFlag,
  );
  const options = new Map(flagsOf().map(({ name, option }) => [name, option]));
  assert.equal(options.get("branch_concurrency"), "--branch-concurrency <count>");
  assert.equal(options.get("allow_plain_http"), "--allow-plain-http");
  assert.equal(options.get("drain_secs"), undefined);
  for (const { name, help } of flagsOf()) assert.ok(help !== "" && help.length <= 65, name);
});

test("a new entry is parsed, listed, a flag and part of the runtime's configuration", async () => {
  const invented_secs = runtimeSetting({
    schema: count(1, 9),
    default: 3,
    unit: "seconds",
    meaning: "Time without a use.",
    flag: { value: "secs", help: "time without a use" },
    becomes: (inventedSecs) => ({ quota: { inventedSecs } }),
  });
  const table = { ...settingTable, invented_secs };
  const variables = { ...env, FORKD_INVENTED_SECS: "7" };
  const config = await loadConfig({}, variables, { table });
  const listed = describeSettings(config, variables, table).find(({ name }) => name === "invented_secs");
  assert.deepEqual(listed, {
    name: "invented_secs",
    value: 7,
    source: "environment",
    default: 3,
    meaning: "Time without a use.",
    allowed: "1 to 9 seconds",
    variable: "FORKD_INVENTED_SECS",
  });
  assert.deepEqual(flagsOf(table).at(-1), {
    name: "invented_secs",
    option: "--invented-secs <secs>",
    help: "time without a use",
  });
  const runtimeTable = { ...runtimeSettings, invented_secs };
  const { quota } = runtimeConfig(config.values, runtimeTable);
  assert.deepEqual(quota, { ...runtimeConfig(config.values).quota, inventedSecs: 7 });

  const file = { invented_secs: 10 };
  await assert.rejects(loadConfig({}, env, { table, file }), /invented_secs \(from file\): /);
  await assert.rejects(loadConfig({}, env, { file }), /invented_secs \(from file\): is not a known field/);
});

test("a secret is neither listed nor logged", async () => {
  const api_password = setting({ schema: z.string(), default: "open", meaning: "A secret.", secret: true });
  const table = { ...settingTable, api_password };
  const config = await loadConfig({}, { ...env, FORKD_API_PASSWORD: "hunter2" }, { table });
  const listed = describeSettings(config, env, table).at(-1);
  assert.deepEqual([listed?.value, listed?.default], ["[hidden]", "[hidden]"]);
  assert.equal(withoutSecrets(config.values, table)["api_password"], "[hidden]");
  assert.equal(withoutSecrets(config.values, table)["listen"], config.values.listen);
});

test("every setting whose name looks like a secret is marked as one", () => {
  for (const [name, { secret }] of entries)
    assert.equal(secret ?? false, /token$|secret|password|private/.test(name), name);
});
