import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { AppError } from "@forkd/contract";
import { explainInterpreterEnd } from "../../src/guest/interpreter-end.ts";
import type { WarmKernel } from "../../src/launch/warm-kernel.ts";
import type { SandboxMachine } from "../../src/sandbox/sandbox-machine.ts";
import { openAgent } from "../fakes/agent.ts";

/** As far as it is used. `oomKills`: those of the guest, here the host, are always more than -1. */
async function machineWith(t: TestContext, oomKills: number): Promise<SandboxMachine> {
  const { agent } = await openAgent(t);
  return { agent, oomKills } as unknown as SandboxMachine;
}

function ended(error: AppError): WarmKernel {
  return { language: "python", client: { dead: error } } as unknown as WarmKernel;
}

function killed(details: Record<string, unknown>): AppError {
  return new AppError("kernel_failed", "The interpreter was killed by SIGKILL", { details });
}

test("explainInterpreterEnd() names the language and says what the next eval does", async (t) => {
  const machine = await machineWith(t, Number.MAX_SAFE_INTEGER);
  const error = killed({ signal: 9 });
  const explained = await explainInterpreterEnd(machine, ended(error), error);
  assert.ok(explained instanceof AppError);
  assert.equal(explained.message, "The python interpreter was killed by SIGKILL");
  assert.deepEqual(explained.details, { signal: 9 });
  assert.match(JSON.stringify(explained.remedy), /next eval starts another interpreter/);
});

test("explainInterpreterEnd() names out of memory when the guest has counted another kill", async (t) => {
  const machine = await machineWith(t, -1);
  const error = killed({ signal: 9 });
  const first = await explainInterpreterEnd(machine, ended(error), error);
  assert.ok(first instanceof AppError);
  assert.equal(first.message, "The python interpreter was killed by SIGKILL: out of memory");
  assert.equal(first.details["out_of_memory"], true);
  const again = await explainInterpreterEnd(machine, ended(error), error);
  assert.ok(again instanceof AppError);
  assert.equal(again.details["out_of_memory"], undefined, "no kill since then");
});

test("explainInterpreterEnd() recognises Node at the limit of its heap, and no other signal", async (t) => {
  const machine = await machineWith(t, -1);
  const log = ["FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"];
  const heap = new AppError("kernel_failed", "The interpreter was killed by SIGABRT", {
    details: { signal: 6, log },
  });
  const explained = await explainInterpreterEnd(machine, ended(heap), heap);
  assert.match((explained as AppError).message, /SIGABRT: out of memory$/);
  const other = killed({ signal: 11 });
  assert.equal(
    ((await explainInterpreterEnd(machine, ended(other), other)) as AppError).details["out_of_memory"],
    undefined,
  );
});

test("explainInterpreterEnd() leaves other errors alone", async (t) => {
  const machine = await machineWith(t, -1);
  const cancelled = new AppError("cancelled", "Eval was cancelled");
  assert.equal(await explainInterpreterEnd(machine, ended(killed({})), cancelled), cancelled);
});
