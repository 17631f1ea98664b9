/** Processes killed in the middle of a branch: the VMM, the program that reads its memory, the daemon. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isErrno } from "@forkd/base";
import type { AppError, Forkd } from "@forkd/sdk";
import { assertNothingHalfMade } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { linkSnapshots } from "../support/data-dir.ts";
import { eventually, processExists, sh } from "../support/sandboxes.ts";
import { testDir } from "../support/test-dir.ts";

const modes = ["live", "diff", "full"] as const;

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** What is listed as ready can be used; what is not is absent, or failed with a reason. Gives the status of the tag. */
async function assertHonest(forkd: Forkd, tag: string): Promise<string> {
  const listed = (await forkd.snapshots.list()).find((each) => each.tag === tag);
  if (!listed) return "absent";
  if (listed.status === "ready") {
    const child = await forkd.forkOne(tag);
    assert.equal(await sh(child, "cat /root/marker"), "marked");
    await child.kill();
  } else {
    assert.equal(listed.status, "failed");
    assert.ok(listed.warning, `${tag} failed without a reason`);
  }
  await forkd.snapshots.remove(tag);
  return listed.status;
}

async function outcomeOf(work: Promise<unknown>, allowed: readonly string[]): Promise<"done" | AppError> {
  try {
    await work;
    return "done";
  } catch (error) {
    const { code, message } = error as AppError;
    assert.ok(allowed.includes(code), `${code}: ${message}`);
    return error as AppError;
  }
}

test("a VMM killed at any moment of a branch costs its own sandbox only", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const { forkd } = daemon;
  const bystander = await forkd.forkOne("tiny");
  for (const [index, ms] of [0, 4, 8, 14, 20, 28, 40, 60].entries()) {
    const tag = `killed-${ms}`;
    const victim = await forkd.forkOne("tiny");
    await sh(victim, "echo marked > /root/marker");
    const branching = outcomeOf(victim.branch({ tag, mode: modes[index % modes.length] }), [
      "engine_failed",
      "agent_unreachable",
      "sandbox_dead",
    ]);
    await pause(ms);
    process.kill(victim.info.pid ?? 0, "SIGKILL");
    await branching;
    await eventually(
      "the death is seen",
      async () => (await forkd.sandboxes.get(victim.id)).info.state === "dead",
    );
    assert.match((await forkd.sandboxes.get(victim.id)).info.reason ?? "", /SIGKILL/);
    await assertNothingHalfMade(forkd, daemon.dataDir);
    await assertHonest(forkd, tag);
    await victim.kill();
  }
  assert.equal(await sh(bystander, "echo alive"), "alive");
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), [bystander.id]);
});

/** Programs named so among the children of a process. */
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

test("a helper killed at any moment costs the branch only: the source runs on", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const { forkd } = daemon;
  const source = await forkd.forkOne("tiny");
  await sh(source, "echo marked > /root/marker");
  let killed = 0;
  for (const [index, ms] of [0, 3, 6, 10, 16, 24, 36, 50, 80].entries()) {
    const tag = `helper-${ms}`;
    const mode = modes[index % modes.length];
    const branching = outcomeOf(source.branch({ tag, mode }), ["engine_failed", "internal"]);
    await pause(ms);
    const until = Date.now() + 60;
    // There is no event on the birth of a process.
    while (helpersOf(daemon.process.pid ?? 0).length === 0 && Date.now() < until) await pause(1);
    for (const pid of helpersOf(daemon.process.pid ?? 0)) {
      process.kill(pid, "SIGKILL");
      killed++;
    }
    const outcome = await branching;
    assert.equal(await sh(source, "cat /root/marker"), "marked");
    await assertNothingHalfMade(forkd, daemon.dataDir);
    assert.equal(await assertHonest(forkd, tag), outcome === "done" ? "ready" : "absent");
  }
  assert.ok(killed > 0);
  assert.equal((await source.branch({ tag: "after" })).status, "ready");
});

type Act = { name: string; tag?: string; begin: (daemon: TestDaemon, id: string) => Promise<unknown> };
const branchAct = (mode: (typeof modes)[number]): Act => ({
  name: mode,
  tag: `new-${mode}`,
  begin: async ({ forkd }, id) => (await forkd.sandboxes.get(id)).branch({ tag: `new-${mode}`, mode }),
});
const pauseAct: Act = {
  name: "pause",
  begin: async ({ forkd }, id) => (await forkd.sandboxes.get(id)).pause(),
};
const compactAct: Act = {
  name: "compact",
  tag: "compacted",
  begin: ({ forkd }) => forkd.snapshots.compact("layer", "compacted"),
};
/** Each with the moment of the daemon's end, in ms after the request. */
const moments: readonly (readonly [Act, number])[] = [
  [branchAct("live"), 15],
  [branchAct("live"), 160],
  [branchAct("diff"), 35],
  [branchAct("full"), 130],
  [pauseAct, 20],
  [pauseAct, 60],
  [pauseAct, 110],
  [compactAct, 60],
];

test("a daemon killed at any moment leaves nothing that claims to be ready and is not", async () => {
  await using dir = await testDir();
  const dataDir = join(dir.path, "data");
  await linkSnapshots(dataDir, ["tiny"]);
  const env = { FORKD_RUNTIME_DIR: join(dir.path, "run") };
  let daemon = await startDaemon({ dataDir, env });
  try {
    const first = await daemon.forkd.forkOne("tiny");
    await sh(first, "echo marked > /root/marker");
    await first.branch({ tag: "layer" });
    await first.kill();
    for (const [act, ms] of moments) {
      const source = await daemon.forkd.forkOne("layer");
      const acting = act.begin(daemon, source.id).catch((error: unknown) => error);
      await pause(ms);
      const ended = once(daemon.process, "exit");
      daemon.process.kill("SIGKILL");
      await ended;
      await acting;
      await daemon[Symbol.asyncDispose]();

      daemon = await startDaemon({ dataDir, env });
      const { forkd } = daemon;
      await eventually("the stray is gone", () => !processExists(source.info.pid));
      await assertNothingHalfMade(forkd, dataDir);
      if (act.tag !== undefined) await assertHonest(forkd, act.tag);
      // A sandbox comes back only if its state was saved, and then it is whole.
      const left = await forkd.sandboxes.list();
      if (left.length > 0) {
        assert.deepEqual(
          left.map(({ id, state }) => [act.name, id, state]),
          [["pause", source.id, "paused"]],
        );
        const back = await forkd.sandboxes.get(source.id);
        await back.resume();
        assert.equal(await sh(back, "cat /root/marker"), "marked");
        await back.kill();
      }
      assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), [], act.name);
      assert.deepEqual(
        (await forkd.snapshots.list()).map(({ tag }) => tag),
        ["layer", "tiny"],
      );
    }
    const child = await daemon.forkd.forkOne("tiny");
    assert.equal(await sh(child, "echo fresh"), "fresh");
  } finally {
    await daemon[Symbol.asyncDispose]();
  }
});
