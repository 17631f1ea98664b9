import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { defaultRuntimeConfig, type RuntimeConfig } from "../../src/config.ts";
import { snapshotFinding } from "../../src/doctor/data.ts";
import { guarded, toCheck, type Finding } from "../../src/doctor/finding.ts";
import { clock, hostFindings, kernel, limitOf } from "../../src/doctor/host.ts";
import { programFindings, qemuVersion } from "../../src/doctor/programs.ts";
import { acceleratorCheck } from "../../src/operations/doctor.ts";
import { storageFindings } from "../../src/doctor/storage.ts";

async function temporary(): Promise<{ config: RuntimeConfig; dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-doctor-"));
  return {
    dir,
    config: {
      ...defaultRuntimeConfig(),
      dataDir: join(dir, "data"),
      runtimeDir: join(dir, "run"),
      guestDir: join(dir, "guest"),
    },
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true }),
  };
}

function find(findings: readonly Finding[], name: string): Finding {
  const found = findings.find((each) => each.name === name);
  assert.ok(found, name);
  return found;
}

test("versions and clocks are judged", () => {
  assert.equal(kernel("5.4.0-generic").outcome, "ok");
  assert.equal(kernel("4.19.1").outcome, "warn");
  assert.equal(qemuVersion("7.2.22", "q").outcome, "ok");
  assert.equal(qemuVersion("5.2", "q").outcome, "warn");
  assert.equal(clock(Date.UTC(1970, 0, 2)).outcome, "fail");
  assert.equal(clock(Date.now()).outcome, "ok");
});

test("limits are read as the kernel writes them", () => {
  const text =
    "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 4096                 files     \nMax processes             unlimited            unlimited            processes \n";
  assert.equal(limitOf(text, "Max open files"), 1024);
  assert.equal(limitOf(text, "Max processes"), Infinity);
});

test("limits are measured against the sandboxes that are allowed", async () => {
  assert.equal(find(await hostFindings({ maxSandboxes: 1 }), "open files").outcome, "ok");
  const wanting = find(await hostFindings({ maxSandboxes: 100_000_000 }), "open files");
  assert.equal(wanting.outcome, "warn");
  assert.match(toCheck(wanting).remedy ?? "", /ulimit -n 400000256/);
});

test("directories are made, and closed to others, by the fix alone", async () => {
  await using place = await temporary();
  const { dataDir } = place.config;
  const absent = find(await storageFindings(place.config), "data directory");
  assert.equal(absent.outcome, "ok");
  await assert.rejects(stat(dataDir), { code: "ENOENT" });
  assert.match((await absent.fix?.()) ?? "", /made .* with mode 0700/);
  assert.equal((await stat(dataDir)).mode & 0o777, 0o700);
  await chmod(dataDir, 0o755);
  const open = find(await storageFindings(place.config), "data directory");
  assert.equal(open.outcome, "warn");
  assert.match(open.detail, /mode 755/);
  await open.fix?.();
  assert.equal((await stat(dataDir)).mode & 0o777, 0o700);
  assert.equal(find(await storageFindings(place.config), "data directory").fix, undefined);
});

test("a data directory that is a file fails", async () => {
  await using place = await temporary();
  await writeFile(place.config.dataDir, "");
  const found = find(await storageFindings(place.config), "data directory");
  assert.equal(found.outcome, "fail");
  const remedy = { action: "change_setting", setting: "data_dir", to: "another directory" };
  assert.deepEqual(found.remedy, remedy);
  const check = toCheck(found);
  assert.equal(check.remedy, "Set the daemon's setting data_dir to another directory.");
  assert.deepEqual(check.remedy_data, remedy);
});

test("programs that are missing are named with a remedy, and compiled parts can be built", async () => {
  await using place = await temporary();
  const { guestDir } = place.config;
  await mkdir(join(guestDir, "build"), { recursive: true });
  await writeFile(
    join(guestDir, "Makefile"),
    "all:\n\t@echo '#!/bin/sh' > build/forkd-agent; chmod +x build/forkd-agent\n",
  );
  const findings = await programFindings({ ...place.config, qemuPath: join(place.dir, "no-qemu") });
  const qemu = find(findings, "qemu");
  assert.equal(qemu.outcome, "fail");
  assert.deepEqual(qemu.remedy, { action: "install", packages: ["qemu-system-x86"], setting: "qemu_path" });
  const agent = find(findings, "guest agent");
  assert.equal(agent.outcome, "fail");
  assert.match((await agent.fix?.()) ?? "", /^built /);
  assert.equal(find(await programFindings(place.config), "guest agent").outcome, "ok");
});

test("snapshots without a manifest or with files missing are named", async () => {
  await using place = await temporary();
  assert.equal((await snapshotFinding(place.config)).detail, "0 with all their files");
  await mkdir(join(place.config.dataDir, "snapshots", "half"), { recursive: true });
  const found = await snapshotFinding(place.config);
  assert.equal(found.outcome, "warn");
  assert.match(found.detail, /1 of 1 cannot be used: half \(/);
});

test("a check that throws is reported and does not hide the others; fixes do not cross the wire", async () => {
  const findings = await guarded("x", () => Promise.reject(new Error("no /proc")));
  assert.match(findings[0]?.detail ?? "", /could not be checked: no \/proc/);
  const check = toCheck({ name: "x", outcome: "ok", detail: "d", fix: async () => "" });
  assert.deepEqual(check, { name: "x", outcome: "ok", detail: "d" });
});

test("a host without KVM has one warning for it", () => {
  const accelerator = { accelerator: "tcg", reason: "software emulation: /dev/kvm does not exist" } as const;
  const config = { ...defaultRuntimeConfig(), accelerator: "auto" } as const;
  const kvm = (outcome: "ok" | "warn"): Finding => ({ name: "kvm", outcome, detail: "" });
  assert.equal(acceleratorCheck({ accelerator, config }, [kvm("warn")]).outcome, "ok");
  assert.equal(acceleratorCheck({ accelerator, config }, [kvm("ok")]).outcome, "warn");
  const chosen = { ...config, accelerator: "tcg" } as const;
  assert.equal(acceleratorCheck({ accelerator, config: chosen }, [kvm("ok")]).outcome, "ok");
});
