import assert from "node:assert/strict";
import { test } from "node:test";
import type { Manifest } from "@forkd/store";
import { differences, requireCompatible, type Host } from "../../src/snapshots/compatibility.ts";
import { facts, tscKhz } from "../support.ts";

const file = { bytes: 0, digest: "0".repeat(64) };
const manifest: Manifest = {
  version: 2,
  ...facts(),
  files: { memory: file, devices: file, disks: [file], rootfs: file },
};
const host: Host = {
  engineName: "fake",
  engineVersion: "1.2.3",
  accelerator: "tcg",
  machineType: manifest.machine.type,
  cpu: manifest.machine.cpu,
  devices: manifest.machine.devices,
  agentProtocol: manifest.agent_protocol,
  tscKhz,
};

test("differences() names what keeps a snapshot from running here", () => {
  const table: [Partial<Host>, RegExp | undefined][] = [
    [{}, undefined],
    [{ engineVersion: "1.2.77" }, undefined],
    [{ engineVersion: "1.2" }, undefined],
    [{ engineVersion: "1.20.3" }, /^fake version: snapshot has 1\.2, this host has 1\.20$/],
    [{ engineVersion: "2.2.3" }, /^fake version/],
    [{ engineName: "qemu" }, /^engine: snapshot has fake, this host has qemu$/],
    [{ machineType: "q35" }, /^machine type: snapshot has microvm, this host has q35$/],
    [{ accelerator: "kvm" }, /^accelerator: snapshot has tcg, this host has kvm$/],
    [{ cpu: "host" }, /^CPU model/],
    [{ devices: [...host.devices].reverse() }, /^devices/],
    [{ devices: host.devices.slice(1) }, /^devices/],
    [{ devices: host.devices.slice(0, -1) }, /^devices/],
    [{ devices: [...host.devices, "one-more"] }, undefined],
    [{ devices: ["one-more", ...host.devices] }, /^devices/],
    [{ agentProtocol: 5 }, /^agent protocol: snapshot has 4, this host has 5$/],
    [{ tscKhz: tscKhz + 2000 }, undefined],
    [{ tscKhz: tscKhz - 2000 }, undefined],
    [{ tscKhz: tscKhz + 2001 }, /^TSC frequency: snapshot counts 2000000 kHz, this host 2002001 kHz/],
    [{ tscKhz: tscKhz - 2001 }, /^TSC frequency/],
  ];
  for (const [here, expected] of table) {
    const found = differences(manifest, { ...host, ...here });
    if (expected === undefined) assert.deepEqual(found, [], JSON.stringify(here));
    else {
      assert.equal(found.length, 1, JSON.stringify({ here, found }));
      assert.match(found[0] ?? "", expected);
    }
  }
});

test("differences() does not ask for the TSC where the guest has another clock", () => {
  const kvm = { ...manifest, machine: { ...manifest.machine, tsc_khz: 0 } };
  assert.deepEqual(differences(kvm, { ...host, tscKhz: 1 }), []);
});

test("requireCompatible() throws one error with every difference", () => {
  requireCompatible("py", manifest, host);
  assert.throws(() => requireCompatible("py", manifest, { ...host, cpu: "host", agentProtocol: 9 }), {
    code: "snapshot_incompatible",
    message: /"py" on this host: CPU model: .*; agent protocol: /,
    remedy: { action: "build_again", tag: "py" },
  });
});
