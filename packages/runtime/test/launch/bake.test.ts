import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import type { AppError } from "@forkd/contract";
import { guestDeadlinesOf } from "@forkd/machine";
import { bake as bakeParent, type BakePlan } from "../../src/launch/bake.ts";
import { fork } from "../../src/operations/fork.ts";
import type { Script } from "../fakes/engine.ts";
import {
  assertOnly,
  context,
  forkRequest,
  openTestRuntime,
  rejectsWith,
  until,
  type TestRuntime,
} from "../support.ts";

const nothing = (): void => undefined;

async function planFor(t: TestContext, some: Partial<BakePlan> = {}): Promise<BakePlan> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-bake-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await writeFile(join(dir, "rootfs"), Buffer.alloc(4096, 1));
  return {
    rootfs: { path: join(dir, "rootfs"), digest: "r", bytes: 4096 },
    kernel: { path: join(dir, "kernel"), digest: "k", version: "6.12" },
    initramfs: { path: join(dir, "initramfs"), digest: "i" },
    memoryMib: 1,
    vcpus: 1,
    env: { A: "1" },
    trust: {},
    run: [],
    services: [],
    languages: {},
    bootTimeoutMs: 120_000,
    ...some,
  };
}

/** As a build does it: the draft has the root file system. */
const bake: typeof bakeParent = async (runtime, draft, plan, context) => {
  await draft.share(draft.path("rootfs"), plan.rootfs.path);
  return bakeParent(runtime, draft, plan, context);
};

async function assertNothingLeft(fixture: TestRuntime): Promise<void> {
  await assertOnly(fixture, []);
  assert.deepEqual(await readdir(fixture.runtime.store.root), [], "drafts");
  assert.ok(fixture.engine.machines.every(({ disposals }) => disposals > 0));
}

// Baking lets the guest settle for seconds, so the tests that come that far run side by side.
describe("bake()", { concurrency: true }, () => {
  test("bake() saves a parent whose snapshot can be forked", async (t) => {
    const fixture = await openTestRuntime(t);
    const { runtime, engine } = fixture;
    const steps: string[] = [];
    {
      await using draft = await runtime.store.draft("py", { replace: false });
      const network = { mode: "open", rules: ["deny 10.0.0.0/8"] } as const;
      const plan = await planFor(t, {
        run: [["pip", "install", "numpy"]],
        network: { ...network, rules: [...network.rules] },
      });
      const facts = await bake(runtime, draft, plan, { onProgress: (step) => steps.push(step) });
      assert.deepEqual(facts.network, network);
      assert.ok((engine.machines[0]?.disposals ?? 0) > 0);
      assert.equal(engine.machines[0]?.isPaused, true, "killed while it is paused");
      await draft.commit(facts);
    }
    assert.deepEqual(steps, ["boot", "run", "save"]);
    assert.deepEqual(engine.machines[0]?.guest.heard.slice(0, 3), ["hello", "afterFork", "start"]);
    assert.equal(engine.machines[0]?.guest.heard.at(-1), "sync");
    await assertOnly(fixture, []);
    const snapshot = await runtime.store.get("py");
    assert.equal(snapshot.manifest.files.memory?.bytes, 1 << 20);
    assert.equal(await readFile(join(snapshot.dir, "devices"), "utf8"), "device state");
    assert.deepEqual(snapshot.manifest.env, { A: "1" });
    assert.equal((await fork(runtime, forkRequest(), context)).length, 1);
  });

  const faults: {
    step: string;
    script: Script;
    plan?: Partial<BakePlan>;
    code: AppError["code"] | undefined;
    message: RegExp;
  }[] = [
    { step: "boot fails", script: { failPrepare: "no VMM" }, code: undefined, message: /no VMM/ },
    {
      step: "the agent does not answer",
      script: { silent: true },
      plan: { bootTimeoutMs: 200 },
      code: "agent_unreachable",
      message: /did not answer within 200 ms/,
    },
    {
      step: "the guest refuses its identity",
      script: { refuseAfterFork: "no clock" },
      code: "guest_refused",
      message: /no clock/,
    },
    {
      step: "a command of the recipe fails",
      script: { exitCode: 3 },
      plan: { run: [["make", "it"]] },
      code: "invalid_recipe",
      message: /Cannot run "make it" in the parent: exit code 3/,
    },
    {
      step: "a command of the recipe fails with output",
      script: { exitCode: 3, stdout: Buffer.from("working 10%\rworking 90%\noh \u001b[1mno\u001b[0m\n\n") },
      plan: { run: [["sh", "-c", "echo oh no >&2; exit 3"]] },
      code: "invalid_recipe",
      message: /^Cannot run "sh -c .*" in the parent: exit code 3; last output: oh no$/,
    },
    {
      step: "the program of a command is missing",
      script: { refuseStart: "nosuch: No such file or directory" },
      plan: { run: [["nosuch"]] },
      code: "invalid_recipe",
      message: /^Cannot start "nosuch" in the parent: nosuch: No such file or directory$/,
    },
    {
      step: "a service exits before the parent is saved",
      script: { exitCode: 1, stdout: Buffer.from("no socket directory\n") },
      plan: { services: [{ name: "db", argv: ["postgres"] }] },
      code: "invalid_recipe",
      message: /^Service "db" exited with code 1; last output: no socket directory$/,
    },
    {
      step: "the devices cannot be saved",
      script: { failSave: "no space" },
      code: undefined,
      message: /no space/,
    },
  ];
  for (const { step, script, plan: some, code, message } of faults) {
    test(`bake() leaves neither draft nor machine when ${step}`, async (t) => {
      const fixture = await openTestRuntime(t);
      const { runtime, engine } = fixture;
      engine.script = () => script;
      const plan = await planFor(t, some);
      {
        await using draft = await runtime.store.draft("py", { replace: false });
        const baking = bake(runtime, draft, plan, { onProgress: nothing });
        if (code === undefined) await assert.rejects(baking, message);
        else await rejectsWith(baking, code, message);
        await assertOnly(fixture, []);
      }
      await assertNothingLeft(fixture);
    });
  }

  test("bake() gives the reason of a parent that dies, not the silence of its agent", async (t) => {
    const fixture = await openTestRuntime(t);
    const { runtime, engine } = fixture;
    engine.script = () => ({ silent: true });
    const plan = await planFor(t);
    {
      await using draft = await runtime.store.draft("py", { replace: false });
      const baking = bake(runtime, draft, plan, { onProgress: nothing });
      await until("it has booted", () => engine.machines[0]?.guest.heard.includes("hello") ?? false);
      engine.machines[0]?.die("guest: Kernel panic");
      await rejectsWith(baking, "engine_failed", /The parent ended: guest: Kernel panic/);
    }
    await assertNothingLeft(fixture);
  });

  test("bake() stops when the caller goes away", async (t) => {
    const fixture = await openTestRuntime(t);
    const { runtime, engine } = fixture;
    engine.script = () => ({ silent: true });
    const plan = await planFor(t);
    const controller = new AbortController();
    {
      await using draft = await runtime.store.draft("py", { replace: false });
      const { signal } = controller;
      const baking = bake(runtime, draft, plan, { onProgress: nothing, signal });
      await until("it has booted", () => engine.machines[0]?.guest.heard.includes("hello") ?? false);
      controller.abort();
      await rejectsWith(baking, "cancelled", /cancelled/);
    }
    await assertNothingLeft(fixture);
  });

  test("bake() has the parent's directory before there is a process, so that a later daemon finds both", async (t) => {
    const { runtime, engine, config } = await openTestRuntime(t);
    const seen: string[][] = [];
    engine.script = () => {
      seen.push(readdirSync(join(config.dataDir, "sandboxes")), readdirSync(config.runtimeDir));
      return { failPrepare: "seen enough" };
    };
    await using draft = await runtime.store.draft("py", { replace: false });
    await assert.rejects(bake(runtime, draft, await planFor(t), { onProgress: nothing }), /seen enough/);
    assert.equal(seen[0]?.length, 1);
    assert.deepEqual(seen[0], seen[1]);
  });

  const silences: Record<string, Script> = {
    "the VMM does not start": { hangPrepare: true },
    "the guest does not greet": { silent: true },
    "the guest falls silent after HELLO": { silentAfterHello: true },
  };
  for (const [what, script] of Object.entries(silences)) {
    test(`bake() boots once more when ${what}`, async (t) => {
      // As long as the share of the boot's time: the restart must not depend on which of them comes first.
      const fixture = await openTestRuntime(t, { guestDeadlines: guestDeadlinesOf(1000) });
      const { runtime, engine } = fixture;
      engine.script = (nth) => (nth === 0 ? script : {});
      const steps: string[] = [];
      {
        await using draft = await runtime.store.draft("py", { replace: false });
        const plan = await planFor(t, { bootTimeoutMs: 4000 });
        await draft.commit(await bake(runtime, draft, plan, { onProgress: (step) => steps.push(step) }));
      }
      assert.deepEqual(steps, ["boot", "boot", "save"]);
      assert.equal(engine.asked, 2);
      assert.ok(engine.machines.every(({ disposals }) => disposals > 0));
      await fork(runtime, forkRequest({ snapshot_tag: "py", n: 1 }), context);
    });

    test(`bake() fails when ${what} in every boot`, async (t) => {
      const fixture = await openTestRuntime(t);
      const { runtime, engine } = fixture;
      engine.script = () => script;
      {
        await using draft = await runtime.store.draft("py", { replace: false });
        const plan = await planFor(t, { bootTimeoutMs: 2000 });
        const baking = bake(runtime, draft, plan, { onProgress: nothing });
        const late = script.silentAfterHello
          ? /within .* after it had booted/
          : /did not answer within 2000 ms/;
        await rejectsWith(baking, "agent_unreachable", late);
      }
      assert.equal(engine.asked, 2);
      await assertNothingLeft(fixture);
    });
  }
});
