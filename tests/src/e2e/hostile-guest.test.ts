/** Root in a guest may do what it likes to the guest: the daemon, and every other sandbox, go on. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError, type Sandbox } from "@forkd/sdk";
import { startDaemon } from "../support/daemon.ts";
import { until } from "@forkd/test-support";
import { forkAll, residentBytes, sh } from "../support/sandboxes.ts";

const mib = 1024 * 1024;

const attacks: readonly (readonly [name: string, script: string])[] = [
  [
    "garbage on the agent's port",
    "for p in /dev/vport* /dev/virtio-ports/*; do head -c 200000 /dev/urandom > $p & done; sleep 1",
  ],
  [
    "the agent is killed and stopped",
    "kill -STOP 1; kill -9 1; for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done",
  ],
  ["a fork bomb", "b() { b | b & }; b; b & sleep 2"],
  [
    "a full disk and a full memory",
    "head -c 500000000 /dev/zero > /root/big; head -c 500000000 /dev/zero > /dev/shm/big; true",
  ],
  ["a gigabyte of output", "head -c 1000000000 /dev/zero"],
];

/** An answer or an error of ours; what the guest does to itself is its own affair. */
async function attack(victim: Sandbox, script: string): Promise<void> {
  try {
    await victim.commands.run(["sh", "-c", script], { timeoutSecs: 3 });
  } catch (error) {
    assert.ok(error instanceof AppError, String(error));
    const codes = ["agent_unreachable", "sandbox_dead", "guest_refused", "capacity_exhausted"];
    assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
  }
}

test("whatever root does in a guest, only that sandbox suffers", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const { forkd } = daemon;
  const [bystander, ...victims] = await forkAll(forkd, "tiny", attacks.length + 1);
  assert.ok(bystander);
  const before = residentBytes(daemon.process.pid);
  const done = Promise.all(
    attacks.map(async ([, script], index) => {
      const victim = victims[index];
      assert.ok(victim);
      await attack(victim, script);
    }),
  );
  let isOver = false;
  void done.finally(() => (isOver = true)).catch(() => undefined);
  do assert.equal(await sh(bystander, "echo well"), "well");
  while (!isOver);
  await done;
  for (const victim of victims) await victim.kill();
  await until("the machines are gone", async () => (await forkd.sandboxes.list()).length === 1);
  assert.equal(await sh(bystander, "echo well"), "well");
  const grown = residentBytes(daemon.process.pid) - before;
  // The 8 MiB of output that an answer may have are 48 MiB of JSON if they are NULs, some of it twice.
  assert.ok(grown < 300 * mib, `the daemon has ${Math.round(grown / mib)} MiB more`);
  assert.equal(daemon.process.exitCode, null);
  assert.doesNotMatch(daemon.log(), /unhandled/i);
});
