import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import type { Manifest } from "@forkd/store";
import { portabilityOf, requirePortable } from "../../src/hub/portability.ts";
import type { Host } from "../../src/snapshots/compatibility.ts";
import { facts, tscKhz } from "../support.ts";

const file = { bytes: 0, digest: "0".repeat(64) };
const manifest: Manifest = {
  version: 2,
  ...facts(),
  files: { memory: file, devices: file, disks: [file], rootfs: file },
};
const host: Host = {
  engineName: manifest.engine.name,
  engineVersion: manifest.engine.version,
  accelerator: manifest.machine.accelerator,
  machineType: manifest.machine.type,
  cpu: manifest.machine.cpu,
  devices: manifest.machine.devices,
  agentProtocol: manifest.agent_protocol,
  tscKhz,
};
const reference = "registry.example.com/team/python:1";

function judge(here: Partial<Host>, hasRecipe = false) {
  return portabilityOf({ reference, manifest, hasRecipe }, { ...host, ...here });
}

test("a host with the same machine can fork the snapshot", () => {
  const found = judge({});
  assert.deepEqual([found.canFork, found.remedy, found.differences], [true, undefined, []]);
  assert.match(found.text, /^This host can fork registry\.example\.com\/team\/python:1 \(fake 1\.2/);
  requirePortable({ reference, manifest, hasRecipe: false }, host);
});

test("a snapshot with a recipe can be built instead, whatever differs", () => {
  for (const here of [
    { engineVersion: "9.9.1" },
    { accelerator: "kvm" as const },
    { agentProtocol: 99 },
    { tscKhz: 1 },
  ])
    assert.deepEqual(
      judge(here, true).remedy,
      { action: "pull_and_rebuild", reference },
      JSON.stringify(here),
    );
});

test("another QEMU and another accelerator name the setting that helps", () => {
  const version = judge({ engineVersion: "9.9.1" });
  assert.match(
    version.text,
    /^This host cannot fork .*: fake version: snapshot has 1\.2, this host has 9\.9$/,
  );
  assert.deepEqual(version.remedy, {
    action: "change_setting",
    setting: "qemu_path",
    to: "a QEMU of version 1.2",
  });
  const remedy = {
    action: "change_setting",
    setting: "accelerator",
    to: '"tcg", as on the host that made it',
  };
  assert.deepEqual(judge({ accelerator: "kvm", cpu: "host on Intel" }).remedy, remedy);
});

test("without a recipe and without a setting that helps, the publisher has to", () => {
  for (const here of [
    { agentProtocol: 99 },
    { tscKhz: 1 },
    { accelerator: "kvm" as const, engineVersion: "9.9.1" },
  ])
    assert.equal(judge(here).remedy?.action, "advice", JSON.stringify(here));
});

test("requirePortable() refuses with every difference and whether a build is possible", () => {
  const other = { ...host, engineVersion: "9.9.1", machineType: "q35" };
  assert.throws(
    () => requirePortable({ reference, manifest, hasRecipe: true }, other),
    (error) => {
      assert.ok(error instanceof AppError);
      assert.equal(error.code, "snapshot_incompatible");
      const { differences, can_rebuild: canRebuild } = error.details;
      assert.deepEqual([(differences as string[]).length, canRebuild], [2, true]);
      return true;
    },
  );
});
