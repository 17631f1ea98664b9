import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { isSandbox, type ExecEvent, type ExecRequest } from "@forkd/contract";
import { exposition, type Histogram } from "@forkd/base";
import { exec, listExecs, streamExec } from "../../src/operations/exec.ts";
import { statFile } from "../../src/operations/files.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { intoGuest, streamFromGuest } from "../../src/sandbox/into-guest.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, type TestRuntime } from "../support.ts";

async function sandboxWith(
  t: TestContext,
  request: Parameters<typeof forkRequest>[0],
): Promise<TestRuntime & { sandbox: Sandbox; command: ExecRequest & { id: string } }> {
  const fixture = await forkableRuntime(t);
  const [entry] = await fork(fixture.runtime, forkRequest(request), context);
  assert.ok(entry && isSandbox(entry));
  const command = {
    id: entry.id,
    args: ["true"],
    env: {},
    stdin_open: false,
    background: false,
    stream: false,
  };
  return { ...fixture, sandbox: fixture.runtime.registry.get(entry.id), command };
}

function countOf(histogram: Histogram): number {
  const [, count] = /_count (\d+)/.exec(exposition([histogram])) ?? [];
  return Number(count);
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const read: T[] = [];
  for await (const item of items) read.push(item);
  return read;
}

test("exec() resumes a paused sandbox that has auto-resume, and is counted", async (t) => {
  const { runtime, sandbox, command } = await sandboxWith(t, { auto_resume: true });
  await pause(runtime, { id: sandbox.id }, context);
  const { exit_code: code } = await exec(runtime, command, context);
  assert.deepEqual([code, sandbox.state, countOf(runtime.metrics.execSeconds)], [0, "running", 1]);
  assert.equal(runtime.activity.isActive(sandbox), false);
});

test("exec(), listExecs() and statFile() refuse a paused sandbox without auto-resume", async (t) => {
  const { runtime, sandbox, command } = await sandboxWith(t, {});
  const { id } = await pause(runtime, { id: sandbox.id }, context);
  await rejectsWith(exec(runtime, command, context), "sandbox_paused", /is paused/);
  await rejectsWith(listExecs(runtime, { id }, context), "sandbox_paused", /is paused/);
  const stat = statFile(runtime, { id, path: "/", follow: true }, context);
  await rejectsWith(stat, "sandbox_paused", /is paused/);
  assert.deepEqual([sandbox.state, countOf(runtime.metrics.execSeconds)], ["paused", 0]);
  assert.equal(runtime.activity.isActive(sandbox), false);
});

test("streamExec() keeps the sandbox active until the stream has ended, and is counted then", async (t) => {
  const { runtime, sandbox, command } = await sandboxWith(t, {});
  const events = await streamExec(runtime, command, context);
  assert.deepEqual([runtime.activity.isActive(sandbox), countOf(runtime.metrics.execSeconds)], [true, 0]);
  const types = (await all<ExecEvent>(events)).map(({ type }) => type);
  assert.deepEqual(types, ["started", "exit"]);
  assert.deepEqual([runtime.activity.isActive(sandbox), countOf(runtime.metrics.execSeconds)], [false, 1]);
});

test("streamFromGuest() ends the call when the reader stops early, and when it never starts", async (t) => {
  const { runtime, sandbox } = await sandboxWith(t, {});
  const numbers = () =>
    streamFromGuest(runtime, { ...context, id: sandbox.id }, async () =>
      (async function* () {
        yield* [1, 2, 3];
      })(),
    );
  for await (const number of await numbers()) {
    assert.equal(number, 1);
    assert.ok(runtime.activity.isActive(sandbox));
    break;
  }
  assert.equal(runtime.activity.isActive(sandbox), false);
  const unread = (await numbers())[Symbol.asyncIterator]();
  assert.ok(runtime.activity.isActive(sandbox));
  await unread.return?.();
  assert.equal(runtime.activity.isActive(sandbox), false);
});

test("a call into a machine that ends reports why it ended", async (t) => {
  const { runtime, sandbox, engine } = await sandboxWith(t, {});
  const call = { ...context, id: sandbox.id };
  const waiting = intoGuest(runtime, call, async ({ agent }) => {
    engine.machines[0]?.die("out of luck");
    await agent.ping();
  });
  await rejectsWith(waiting, "sandbox_dead", /out of luck/);
  const again = streamFromGuest(runtime, call, async ({ agent }) => {
    await agent.ping();
    return (async function* () {})();
  });
  await rejectsWith(again, "sandbox_dead", /out of luck/);
  assert.equal(runtime.activity.isActive(sandbox), false);
});
