/** What becomes of a sandbox when the daemon stops: a workspace is saved, what was saved stays, the rest ends. */
import { mapPool } from "@forkd/base";
import { save } from "../operations/pause.ts";
import type { Runtime } from "../open-runtime.ts";
import type { Sandbox } from "./sandbox.ts";

/** Ends every machine; gives how many ran. */
export async function closeSandboxes(runtime: Runtime): Promise<number> {
  const all = runtime.registry.all();
  const running = all.filter(({ state }) => state === "running").length;
  await mapPool(all, 16, (sandbox) => closeSandbox(runtime, sandbox));
  return running;
}

async function closeSandbox(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  if (sandbox.facts.workspace !== undefined && sandbox.state === "running") {
    try {
      await sandbox.exclusively(undefined, (signal) => save(runtime, sandbox, signal));
    } catch (error) {
      runtime.log.error({ event: "workspace.suspend", outcome: "failed", sandbox: sandbox.id, error });
    }
  }
  const comesBack = sandbox.saved !== undefined || sandbox.facts.workspace !== undefined;
  if (!comesBack || sandbox.isDead) {
    await runtime.registry.remove(sandbox.id);
    return;
  }
  runtime.registry.forget(sandbox.id);
  try {
    await sandbox.stop();
  } catch (error) {
    runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, error });
  }
}
