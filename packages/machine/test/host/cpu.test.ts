import assert from "node:assert/strict";
import { test } from "node:test";
import { cpuIdentityIn, hostCpuIdentity } from "../../src/host/cpu.ts";

const cpuinfo = `processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Some CPU
stepping\t: 5
flags\t\t: fpu vme de
`;

test("cpuIdentityIn() changes only with what a guest can see", () => {
  const identity = cpuIdentityIn(cpuinfo);
  assert.match(identity, /^GenuineIntel 6\/106\/5 flags [0-9a-f]{12}$/);
  assert.equal(cpuIdentityIn(cpuinfo.replace("Some CPU", "Another name")), identity);
  assert.notEqual(cpuIdentityIn(cpuinfo.replace("vme", "avx512f")), identity);
  assert.notEqual(cpuIdentityIn(cpuinfo.replace(": 5", ": 6")), identity);
});

test("hostCpuIdentity() describes this host", () => {
  assert.match(hostCpuIdentity(), /flags [0-9a-f]{12}$/);
  assert.equal(hostCpuIdentity(), hostCpuIdentity());
});
