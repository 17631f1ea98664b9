/**
 * What becomes of a sandbox when the daemon stops. Kept ones run on and are taken up by the next daemon. Where they are to stop, a
 * workspace is saved, what was saved stays, the rest ends.
 */
import { mapPool } from "@forkd/base";
import type { OnStop } from "../config.ts";
import { saveSandbox } from "../capture/save-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "./sandbox.ts";

/** Gives how many machines were ended and how many run on. */
export async function closeSandboxes(
  runtime: Runtime,
  onStop: OnStop,
): Promise<{ stopped: number; kept: number }> {
  // A machine that is let go of in the middle of a capture would stand still until somebody takes it up.
  await runtime.work.end();
  const all = runtime.registry.all();
  const running = all.filter(({ state }) => state === "running").length;
  await mapPool(all, 16, (sandbox) =>
    onStop === "keep" ? keepSandbox(runtime, sandbox) : closeSandbox(runtime, sandbox),
  );
  return onStop === "keep" ? { stopped: 0, kept: running } : { stopped: running, kept: 0 };
}

async function keepSandbox(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  // A dead one releases itself; one whose record is damaged stays as it is.
  runtime.registry.forget(sandbox.id);
  try {
    await sandbox.letGo();
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
  // What this daemon cannot read another may be able to.
  if (sandbox.isCondemned || sandbox.unusable) return runtime.registry.forget(sandbox.id);
  if (!sandbox.comesBack || sandbox.isDead) return runtime.registry.remove(sandbox.id);
  runtime.registry.forget(sandbox.id);
  if (sandbox.state !== "running") return;
  try {
    await sandbox.stop();
    // The next daemon does not look for a machine that was ended on purpose.
    await sandbox.persist();
  } catch (error) {
    runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, error });
  }
}
