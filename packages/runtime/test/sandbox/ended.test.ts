import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { nullLogger } from "@forkd/base";
import { isSandbox } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { getSandbox, kill } from "../../src/operations/sandboxes.ts";
import { EndedSandboxes, type EndedSandbox } from "../../src/sandbox/ended.ts";
import { follow } from "../restart.ts";
import { context, forkableRuntime, forkRequest, until } from "../support.ts";

function ended(nth: number): EndedSandbox {
  return {
    record: {
      version: 2,
      id: `sb-${nth.toString(16).padStart(24, "0")}`,
      hostname: "h",
      machine_id: "m",
      boot_id: "b",
      env: {},
      labels: {},
      index: 0,
      created_at_unix: nth,
      snapshot_tag: "py",
      machines: 1,
    },
    reason: "it ended",
    console: "x".repeat(10_000),
    ended_at_unix: nth,
    shape: { vcpus: 1, memory_mib: 1, accelerator: "tcg", languages: [] },
  };
}

async function place(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-ended-"));
  t.after(() => rm(dir, { recursive: true }));
  return join(dir, "ended.json");
}

test("EndedSandboxes keeps the last 200, and reads what is valid in a file", async (t) => {
  const path = await place(t);
  const first = new EndedSandboxes(path, nullLogger());
  assert.deepEqual(await first.load(), []);
  await Promise.all(Array.from({ length: 210 }, (_, nth) => first.add(ended(nth))));
  await first.remove(ended(209).record.id);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const kept = await new EndedSandboxes(path, nullLogger()).load();
  assert.deepEqual([kept.length, kept[0]?.ended_at_unix, kept.at(-1)?.ended_at_unix], [199, 10, 208]);
  assert.equal(kept[0]?.console.length, 4096);
  await writeFile(path, JSON.stringify({ version: 1, sandboxes: [{ odd: true }, ended(7)] }));
  assert.equal((await first.load()).length, 1);
  await writeFile(path, "{");
  assert.deepEqual(await new EndedSandboxes(path, nullLogger()).load(), []);
});

test("a dead sandbox is listed with its reason after a restart, until it is killed", async (t) => {
  const first = await forkableRuntime(t);
  const entries = await fork(first.runtime, forkRequest({ n: 2, labels: { job: "x" } }), context);
  const [one, two] = entries.filter(isSandbox);
  assert.ok(one && two);
  first.engine.machines[0]?.die("VMM killed by SIGKILL");
  await until("its files are gone", () => !first.runtime.places.has(one.id));

  const second = await follow(t, first);
  const listed = getSandbox(second.runtime, { id: one.id });
  assert.deepEqual([listed.state, listed.labels], ["dead", { job: "x" }]);
  assert.match(listed.reason ?? "", /SIGKILL/);
  assert.equal(getSandbox(second.runtime, { id: two.id }).state, "running");
  await second.runtime[Symbol.asyncDispose]();

  const third = await follow(t, second);
  assert.equal(getSandbox(third.runtime, { id: one.id }).state, "dead", "also after a stop of all sandboxes");
  await kill(third.runtime, { id: one.id });
  const fourth = await follow(t, third);
  assert.throws(() => getSandbox(fourth.runtime, { id: one.id }), { code: "sandbox_not_found" });
});

test("a sandbox that is killed while its end is being recorded is not listed after a restart", async (t) => {
  const first = await forkableRuntime(t);
  const { runtime, engine } = first;
  const [one] = (await fork(runtime, forkRequest(), context)).filter(isSandbox);
  assert.ok(one);
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  const chain = runtime.store.chain.bind(runtime.store);
  runtime.store.chain = async (snapshot) => {
    await gate;
    return chain(snapshot);
  };
  engine.machines[0]?.die("VMM killed by SIGKILL");
  await until("it is dead", () => getSandbox(runtime, { id: one.id }).state === "dead");
  await kill(runtime, { id: one.id });
  const removed = new Promise<void>((resolve) => {
    const { onEndedRemoved } = runtime.registry;
    runtime.registry.onEndedRemoved = async (id) => {
      await onEndedRemoved(id);
      resolve();
    };
  });
  open();
  await removed;
  const second = await follow(t, first);
  assert.throws(() => getSandbox(second.runtime, { id: one.id }), { code: "sandbox_not_found" });
});
