/** A sandbox to branch, pause and rewind, on a fake engine. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { isSandbox, type BranchRequest } from "@forkd/contract";
import { fork } from "../src/operations/fork.ts";
import type { Sandbox } from "../src/sandbox/sandbox.ts";
import type { FakeMachine, Script } from "./fakes/engine.ts";
import { context, forkableRuntime, forkRequest, type TestRuntime } from "./support.ts";

export function branchRequest(id: string, some: Partial<BranchRequest> = {}): BranchRequest {
  return { id, wait: true, n: 0, vary: [], env: {}, labels: {}, ...some };
}

export type Source = TestRuntime & { sandbox: Sandbox; machine: FakeMachine };

export async function openSource(t: TestContext, script: Script = {}, settings = {}): Promise<Source> {
  const fixture = await forkableRuntime(t, settings);
  const { runtime, engine } = fixture;
  engine.script = (nth) => (nth === 0 ? script : {});
  const [entry] = await fork(runtime, forkRequest({ env: { A: "1" } }), context);
  assert.ok(entry && isSandbox(entry));
  const [machine] = engine.machines;
  assert.ok(machine);
  return { ...fixture, sandbox: runtime.registry.get(entry.id), machine };
}
