import assert from "node:assert/strict";
import { test } from "node:test";
import type { Group } from "@forkd/machine";
import { diagnose, diskLimits } from "../../src/admission/limits.ts";

const groupThat = (kill: "limit" | "host" | undefined) => ({ oomKill: () => kill }) as unknown as Group;
const limits = { best_effort: false, memory_mib: 64, disk_mib: 8 };
const killed = { signal: "SIGKILL", exitCode: null };

test("diagnose() names the limit that a VMM was ended for, with its code", () => {
  assert.deepEqual(diagnose(groupThat("limit"), limits, 128)(killed), {
    text: "out of memory: limit 64 MiB (guest has 128 MiB)",
    code: "out_of_memory",
  });
  assert.equal(diagnose(groupThat("host"), limits)(killed)?.code, "host_out_of_memory");
  const text = diskLimits(limits, 0)?.growth?.reason ?? "";
  assert.match(text, /^disk limit reached: its disk took more than 8 MiB/);
  assert.deepEqual(diagnose(undefined, limits)({ ...killed, text, exceeded: "disk" }), {
    text,
    code: "disk_limit",
  });
});

test("diagnose() leaves an exit that no limit explains as it is", () => {
  assert.equal(diagnose(groupThat(undefined), limits)(killed), undefined);
  assert.equal(diagnose(undefined, limits)(killed), undefined);
  assert.equal(diagnose(groupThat("limit"), limits)({ signal: null, exitCode: 1 }), undefined);
  // How a VMM ended that another daemon started is not known, so its group decides.
  assert.equal(diagnose(groupThat("limit"), limits)({ signal: null, exitCode: null })?.code, "out_of_memory");
  // Only the engine knows whether a limit was exceeded; the text of an exit does not count.
  const text = "disk limit reached: so says the guest";
  assert.equal(diagnose(undefined, limits)({ ...killed, text }), undefined);
});
