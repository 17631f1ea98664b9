/** Interpreters that are started again, under the guest's agent. */
import assert from "node:assert/strict";
import { copyFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import type { AgentClient } from "@forkd/machine";
import { startKernelAgain, writeWarmup, type WarmKernel } from "../../src/launch/warm-kernel.ts";
import { openAgent } from "../fakes/agent.ts";
import { guestDir, rejectsWith } from "../support.ts";

const context = "default";

async function makeSpec(t: TestContext) {
  const { agent, directory } = await openAgent(t);
  const source = join(guestDir, "kernels/python");
  for (const name of (await readdir(source)).filter((each) => each.endsWith(".py")))
    await copyFile(join(source, name), join(directory, name));
  const argv = ["python3", join(directory, "kernel.py")];
  const env = { PATH: process.env["PATH"] ?? "" };
  return { agent, directory, spec: { language: "python" as const, argv, env } };
}

async function startAgain(
  agent: AgentClient,
  spec: Parameters<typeof startKernelAgain>[1],
): Promise<WarmKernel> {
  const kernel = await startKernelAgain(agent, spec);
  assert.equal(kernel.client.dead, undefined);
  return kernel;
}

test("startKernelAgain() runs the warm-up that the guest keeps", async (t) => {
  const { agent, spec } = await makeSpec(t);
  await writeWarmup(agent, spec.argv, "import json as warmed\nprint('noise')");
  const kernel = await startAgain(agent, spec);
  assert.deepEqual(kernel.restart, {});
  let seen = "";
  const onOutput = (_stream: 1 | 2, bytes: Buffer): void => void (seen += bytes.toString());
  const value = await kernel.client.evaluate({ code: "warmed.dumps([1])", context, onOutput });
  assert.deepEqual([value.json?.parse(), seen], ["[1]", ""]);
});

test("startKernelAgain() reports a warm-up that fails, and the interpreter can be used", async (t) => {
  const { agent, spec } = await makeSpec(t);
  await writeWarmup(agent, spec.argv, "a = 1\nimport nosuch");
  const kernel = await startAgain(agent, spec);
  assert.match(kernel.restart?.warmupError ?? "", /^ModuleNotFoundError: No module named 'nosuch'$/);
  assert.equal((await kernel.client.evaluate({ code: "a", context })).text, "1");
});

test("startKernelAgain() reports that an older snapshot does not contain its warm-up", async (t) => {
  const { agent, spec } = await makeSpec(t);
  const kernel = await startAgain(agent, spec);
  assert.match(kernel.restart?.warmupError ?? "", /does not contain its warm-up/);
});

test("startKernelAgain() does nothing for an empty warm-up", async (t) => {
  const { agent, spec } = await makeSpec(t);
  await writeWarmup(agent, spec.argv, "");
  assert.deepEqual((await startAgain(agent, spec)).restart, {});
});

test("startKernelAgain() fails when the warm-up ends the interpreter", async (t) => {
  const { agent, directory, spec } = await makeSpec(t);
  await writeFile(join(directory, "warmup"), "import os; os._exit(5)");
  await rejectsWith(startKernelAgain(agent, spec), "kernel_failed", /exited with code 5/);
});
