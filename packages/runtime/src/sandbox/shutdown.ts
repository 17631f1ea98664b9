/**
 * What the daemon does with sandboxes when it stops.
 *
 *   keep   Machines keep running, and the next daemon adopts them.
 *   stop   A workspace is saved. A sandbox that can be resumed stays on disk. All others are killed.
 */
import { mapPool } from "@forkd/base";
import type { OnStop } from "../config.ts";
import { saveSandbox } from "../capture/save-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "./sandbox.ts";
import { hasUnreadFiles, isRestorable } from "./states.ts";

/** Returns how many machines were stopped and how many keep running. */
export async function closeSandboxes(
  runtime: Runtime,
  onStop: OnStop,
): Promise<{ stopped: number; kept: number }> {
  // A machine that is released in the middle of a capture would stay stopped until the next daemon adopts it.
  await runtime.work.end();
  const all = runtime.registry.all();
  const running = all.filter(({ state }) => state === "running").length;
  await mapPool(all, 16, (sandbox) =>
    onStop === "keep" ? keepSandbox(runtime, sandbox) : closeSandbox(runtime, sandbox),
  );
  return onStop === "keep" ? { stopped: 0, kept: running } : { stopped: running, kept: 0 };
}

async function keepSandbox(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  runtime.registry.forget(sandbox.id);
  try {
    await sandbox.release();
  } catch (error) {
    runtime.log.error({ event: "sandbox.keep", outcome: "failed", sandbox: sandbox.id, error });
  }
}

async function closeSandbox(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  if (sandbox.facts.workspace !== undefined && sandbox.state === "running") {
    try {
      await sandbox.exclusively(undefined, (signal) => saveSandbox(runtime, sandbox, signal));
    } catch (error) {
      runtime.log.error({ event: "workspace.suspend", outcome: "failed", sandbox: sandbox.id, error });
    }
  }
  if (hasUnreadFiles(sandbox.status)) return runtime.registry.forget(sandbox.id);
  if (!isRestorable(sandbox.status) || sandbox.isDead) return runtime.registry.remove(sandbox.id);
  runtime.registry.forget(sandbox.id);
  if (sandbox.state !== "running") return;
  try {
    await sandbox.stopMachine();
    // So that the next daemon does not take the machine for lost.
    await sandbox.persist();
  } catch (error) {
    runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, error });
  }
}
