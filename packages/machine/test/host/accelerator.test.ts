import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { chooseAccelerator, kvmObstacle } from "../../src/host/accelerator.ts";

const never = (): Promise<string | undefined> => assert.fail("a guest was booted");

test("kvmObstacle() names an obstacle unless the CPU's KVM module is loaded", async () => {
  const obstacle = await kvmObstacle();
  if (!existsSync("/dev/kvm")) assert.equal(obstacle, "/dev/kvm does not exist");
  else if (existsSync("/sys/module/kvm_pvm")) assert.match(obstacle ?? "", /kvm_pvm/);
  else if (obstacle === undefined) {
    assert.ok(existsSync("/sys/module/kvm_intel") || existsSync("/sys/module/kvm_amd"));
  } else assert.match(obstacle, /kvm/);
});

test("chooseAccelerator() uses the configured accelerator without a probe", async () => {
  for (const accelerator of ["kvm", "tcg"] as const) {
    assert.deepEqual(await chooseAccelerator(accelerator, never), {
      accelerator,
      reason: "set by configuration",
    });
  }
});

test("chooseAccelerator() falls back to TCG, with the reason, when the test guest does not boot", async () => {
  const obstacle = await kvmObstacle();
  const probe = obstacle === undefined ? async () => "a guest did not boot" : never;
  assert.deepEqual(await chooseAccelerator("auto", probe), {
    accelerator: "tcg",
    reason: `software emulation: ${obstacle ?? "a guest did not boot"}`,
  });
});

test("chooseAccelerator() uses KVM only if there is no obstacle and the test guest boots", async () => {
  const asked: string[] = [];
  const choice = await chooseAccelerator("auto", async (accelerator) => {
    asked.push(accelerator);
    return undefined;
  });
  const usable = (await kvmObstacle()) === undefined;
  assert.deepEqual(asked, usable ? ["kvm"] : []);
  assert.equal(choice.accelerator, usable ? "kvm" : "tcg");
});

test("chooseAccelerator() relies on kvmObstacle() when the probe cannot run", async () => {
  const full = () => Promise.reject(new Error("no space left"));
  const { accelerator, reason } = await chooseAccelerator("auto", full, async () => undefined);
  assert.deepEqual([accelerator, /could not be tried: no space left/.test(reason)], ["kvm", true]);
  const emulated = await chooseAccelerator("auto", full, async () => "no module");
  assert.equal(emulated.accelerator, "tcg");
});
