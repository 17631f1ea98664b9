/** Root in a guest can damage that guest only: the daemon and every other sandbox keep running. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { ForkdError, type Sandbox } from "@forkd/sdk";
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

/** The call must succeed or fail with one of the expected codes. */
async function attack(victim: Sandbox, script: string): Promise<void> {
  try {
    await victim.commands.run(["sh", "-c", script], { timeoutMs: 3000 });
  } catch (error) {
    assert.ok(error instanceof ForkdError, String(error));
    const codes = ["agent_unreachable", "sandbox_dead", "guest_refused", "capacity_exhausted"];
    assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
  }
}

test("attacks by root in a guest affect only that sandbox", async () => {
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
  await until("the machines are gone", async () => (await forkd.sandboxes.list().all()).length === 1);
  assert.equal(await sh(bystander, "echo well"), "well");
  const grown = residentBytes(daemon.process.pid) - before;
  // An answer may have 8 MiB of output, which is 48 MiB of JSON if all bytes are NUL, and parts exist twice.
  assert.ok(grown < 300 * mib, `the daemon's memory grew by ${Math.round(grown / mib)} MiB`);
  assert.equal(daemon.process.exitCode, null);
  assert.doesNotMatch(daemon.log(), /unhandled/i);
});
