import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultRuntimeConfig, runtimeConfig, runtimeSettings, type RuntimeValues } from "../src/config.ts";
import { defaultsOf } from "../src/setting.ts";

const host = { env: { XDG_DATA_HOME: "/data" }, uid: 1000, home: "/home/u", cores: 6 };
const values = defaultsOf(runtimeSettings, host) as RuntimeValues; // every runtime setting has a default

test("every runtime setting has a default that its schema accepts unchanged", () => {
  const defaults = new Map<string, unknown>(Object.entries(values));
  for (const [name, { schema }] of Object.entries(runtimeSettings))
    assert.deepEqual(schema.parse(defaults.get(name)), defaults.get(name), name);
  assert.deepEqual([values.data_dir, values.fork_parallelism], ["/data/forkd", 6]);
});

test("runtimeConfig() converts units, leaves out what is not set, and merges nested parts", () => {
  const config = runtimeConfig({ ...values, boot_timeout_secs: 2, default_cpu_percent: 50 });
  assert.equal(config.bootTimeoutMs, 2000);
  assert.ok(!("machinesGroup" in config));
  assert.deepEqual(config.quota.defaultLimits, { cpu_percent: 50 });
  assert.deepEqual(config.quota.retention, { maxAgeDays: 0, keepLast: 0 });
  assert.equal(config.quota.maxPendingForks, 2000);
  assert.equal(runtimeConfig({ ...values, machines_cgroup: "../m" }).machinesGroup, "../m");
});

test("defaultRuntimeConfig() limits nothing", () => {
  assert.deepEqual(defaultRuntimeConfig().quota.defaultLimits, {});
});
