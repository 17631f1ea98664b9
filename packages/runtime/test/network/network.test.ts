import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { nullLogger } from "@forkd/base";
import { identify, type NetworkDevice } from "@forkd/machine";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { defaultRuntimeConfig } from "../../src/config.ts";
import { Network } from "../../src/network/network.ts";
import { noNetwork } from "../../src/network/sandbox-network.ts";

const filtered = { ...noNetwork, mode: "filtered" } as const;

/** The network of a host that gives new machines this device. Its proxy and its gate are real. */
async function open(t: TestContext, netdev: NetworkDevice, missing: string[] = []): Promise<Network> {
  const config = { ...defaultRuntimeConfig(), dataDir: await temporaryDirectory(t) };
  const variant = netdev === "none" ? "none" : "user";
  return Network.open(config, { variant, netdev, missing }, nullLogger());
}

/** This process as a machine. It is in the network namespace of the host. */
function machine(network: NetworkDevice) {
  const found = identify(process.pid);
  assert.ok(found);
  return { process: found, network };
}

test("slot() of a machine without a network device makes no listeners and says why", async (t) => {
  await using network = await open(t, "slirp");
  using adopted = network.slot("sb-1-0", machine("none"));
  await adopted.apply(filtered, undefined);
  assert.equal(adopted.device, "none");
  assert.match(adopted.note ?? "", /earlier daemon/);
  assert.equal((await adopted.counters()).connections, 0);
});

test("slot() never makes listeners in the namespace of the host", async (t) => {
  await using network = await open(t, "slirp");
  using slot = network.slot("sb-1-0", machine("slirp"));
  assert.equal(slot.device, "slirp");
  await rejectsWith(slot.apply(filtered, undefined), "engine_failed", /namespace of the gate/);
});

test("slot() of a connected machine has no device on a host without a network", async (t) => {
  await using network = await open(t, "none", ["jail: switched off by the settings"]);
  using adopted = network.slot("sb-1-0", machine("tap"));
  await adopted.apply(filtered, undefined);
  assert.equal(adopted.device, "none");
  assert.match(adopted.note ?? "", /switched off/);
});

test("check() refuses more rules or ceilings than the proxy takes, presets included", async (t) => {
  await using network = await open(t, "none", ["none"]);
  const many = { ...filtered, rules: Array.from({ length: 10_000 }, () => "allow preset:debian") };
  assert.throws(() => network.check(many), { code: "invalid_request", message: /40000 rules/ });
  const ceilings = Array.from({ length: 17 }, (_, nth) => ({
    mode: "filtered" as const,
    rules: [`allow a${nth}.test`],
  }));
  assert.throws(() => network.check({ ...filtered, ceilings }), {
    code: "invalid_request",
    message: /17 ceilings/,
  });
});

test("a refused change leaves the slot as it was", async (t) => {
  await using network = await open(t, "slirp");
  using slot = network.slot("sb-1-0", machine("slirp"));
  await rejectsWith(slot.apply({ ...filtered, mode: "open" }, undefined), "engine_failed");
  assert.equal(slot.isUp, false);
  // One slot that cannot be changed does not fail a change of presets or secrets for the others.
  await network.refresh();
});

test("open() refuses settings whose rules cannot be read", async (t) => {
  const dataDir = await temporaryDirectory(t);
  const config = defaultRuntimeConfig();
  const wrong = { ...config, dataDir, network: { ...config.network, rules: ["allow preset:gone"] } };
  const facts = { variant: "none", netdev: "none", missing: [] } as const;
  await rejectsWith(
    Network.open(wrong, facts, nullLogger()),
    "host_not_ready",
    /network_rules: .*preset "gone"/,
  );
});
