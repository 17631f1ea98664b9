/** Processes killed in the middle of a branch: the VMM, and the helper that reads its memory. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isErrno } from "@forkd/base";
import type { ForkdError } from "@forkd/sdk";
import { assertStatusIsTrue, assertNoDrafts } from "../support/branches.ts";
import { startDaemon } from "../support/daemon.ts";
import { until } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

const modes = ["live", "diff", "full"] as const;

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function outcomeOf(work: Promise<unknown>, allowed: readonly string[]): Promise<"done" | ForkdError> {
  try {
    await work;
    return "done";
  } catch (error) {
    const { code, message } = error as ForkdError;
    assert.ok(allowed.includes(code), `${code}: ${message}`);
    return error as ForkdError;
  }
}

test("a VMM killed during a branch stops its own sandbox only", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const { forkd } = daemon;
  const bystander = await forkd.create("tiny");
  for (const [index, ms] of [0, 4, 8, 14, 20, 28, 40, 60].entries()) {
    const tag = `killed-${ms}`;
    const victim = await forkd.create("tiny");
    await sh(victim, "echo marked > /root/marker");
    const branching = outcomeOf(victim.branch({ tag, mode: modes[index % modes.length] }), ["sandbox_dead"]);
    await pause(ms);
    process.kill(victim.info.pid ?? 0, "SIGKILL");
    await branching;
    await until(
      "the sandbox is reported dead",
      async () => (await forkd.sandboxes.get(victim.id)).info.state === "dead",
    );
    assert.match((await forkd.sandboxes.get(victim.id)).info.reason ?? "", /SIGKILL/);
    await assertNoDrafts(forkd, daemon.dataDir);
    await assertStatusIsTrue(forkd, tag);
    await victim.kill();
  }
  assert.equal(await sh(bystander, "echo alive"), "alive");
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), [bystander.id]);
});

/** The children of a process that run forkd-pages. */
function helpersOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  return children.map(Number).filter((child) => {
    try {
      return child > 0 && readFileSync(`/proc/${child}/comm`, "utf8").trim() === "forkd-pages";
    } catch (error) {
      if (isErrno(error, "ENOENT", "ESRCH")) return false;
      throw error;
    }
  });
}

/** Returns how many processes it killed: 1, or 0 if the process had already exited. */
function kill(pid: number): number {
  try {
    process.kill(pid, "SIGKILL");
    return 1;
  } catch (error) {
    if (isErrno(error, "ESRCH")) return 0;
    throw error;
  }
}

test("a killed helper process fails its branch only, and the source keeps running", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const { forkd } = daemon;
  const source = await forkd.create("tiny");
  await sh(source, "echo marked > /root/marker");
  const moments = [0, 3, 6, 10, 16, 24, 36, 50, 80];
  let killed = 0;
  // A busy host may miss every helper. Then try again.
  for (let index = 0; index < moments.length || killed === 0; index++) {
    const tag = `helper-${index}`;
    const mode = modes[index % modes.length];
    let isOver = false;
    const branching = outcomeOf(source.branch({ tag, mode }), ["engine_failed", "internal"]).finally(
      () => (isOver = true),
    );
    // No event announces the start of a process.
    while (helpersOf(daemon.process.pid ?? 0).length === 0 && !isOver) await pause(1);
    await pause(moments[index % moments.length] ?? 0);
    for (const pid of helpersOf(daemon.process.pid ?? 0)) killed += kill(pid);
    const outcome = await branching;
    assert.equal(await sh(source, "cat /root/marker"), "marked");
    await assertNoDrafts(forkd, daemon.dataDir);
    assert.equal(await assertStatusIsTrue(forkd, tag), outcome === "done" ? "ready" : "absent");
  }
  assert.equal((await source.branch({ tag: "after" })).status, "ready");
});
