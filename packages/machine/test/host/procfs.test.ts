import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { copyFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { identify, isAlive, isEnding, memoryUse } from "../../src/host/procfs.ts";
import { temporaryDirectory } from "@forkd/test-support";

async function started(t: TestContext, program: string): Promise<{ child: ChildProcess; pid: number }> {
  const child = spawn(program, ["60"], { stdio: "ignore" });
  await once(child, "spawn");
  t.after(() => end(child));
  return { child, pid: child.pid ?? 0 };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

test("identify() identifies a live process, and isAlive() reports its exit", async (t) => {
  const { child, pid } = await started(t, "sleep");
  const id = identify(pid);
  assert.ok(id && id.pid === pid && Number.isInteger(id.startTime) && id.startTime > 0);
  assert.deepEqual(identify(pid), id);
  assert.ok(isAlive(id));
  assert.equal(isAlive({ pid, startTime: id.startTime + 1 }), false, "another process with that pid");
  assert.equal(isEnding(id), false);
  await end(child);
  assert.ok(isEnding(id));
  assert.equal(identify(pid), undefined);
  assert.equal(isAlive(id), false);
});

test("identify() reads the right fields for any program name", async (t) => {
  const program = join(await temporaryDirectory(t), "a) S 1 (b");
  await copyFile("/bin/sleep", program);
  const { pid } = await started(t, program);
  const reference = await started(t, "sleep");
  // Both processes started just now, so their start times are close; a wrong field would be far off.
  while (!(await readFile(`/proc/${pid}/stat`, "latin1")).includes("(a) S 1 (b)")) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const difference = (identify(reference.pid)?.startTime ?? 0) - (identify(pid)?.startTime ?? 0);
  assert.ok(Math.abs(difference) < 6000, `${difference} ticks apart`);
});

test("memoryUse() counts the memory of live processes only", async () => {
  const use = await memoryUse(process.pid);
  assert.ok(use && use.privateBytes > 1 << 20 && use.pssBytes > 1 << 20 && use.sharedBytes >= 0);
  const rss = process.memoryUsage.rss();
  assert.ok(use.privateBytes + use.sharedBytes < 2 * rss, "bytes, not KiB");
  assert.equal(await memoryUse(2 ** 22 + 1), undefined);
});
