/**
 * What the daemon does with sandboxes when it stops.
 *
 *   keep   Machines keep running, and the next daemon adopts them. One whose sockets were removed could not be
 *          adopted, so its sandbox is paused.
 *   stop   A workspace is saved. A sandbox that can be resumed stays on disk. All others are killed.
 *
 * A workspace that cannot be saved is not stopped, except by force: saveWorkspaces() lets the daemon refuse
 * while it still can, and later on the machine is left running for the next daemon.
 */
import { mapPool } from "@forkd/base";
import { AppError, toAppError, type ShutdownResult } from "@forkd/contract";
import type { OnStop } from "../config.ts";
import { pauseSandbox, saveSandbox } from "../capture/save-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "./sandbox.ts";
import { hasUnreadFiles, isRestorable } from "./states.ts";

/** A workspace whose state is not on disk, and why. */
type Unsaved = NonNullable<ShutdownResult["unsaved"]>[number];

type CloseOptions = { onStop: OnStop; force?: boolean | undefined };

const atOnce = 16;

/**
 * Saves the running workspaces while the daemon still serves. Throws `workspace_not_saved` if one cannot be
 * saved; those that were saved stay paused. Returns the names of the saved ones.
 */
export async function saveWorkspaces(runtime: Runtime): Promise<string[]> {
  const running = runtime.registry.all().flatMap((sandbox) => {
    const { workspace: name } = sandbox.facts;
    return name !== undefined && sandbox.state === "running" ? [{ sandbox, name }] : [];
  });
  const failed: Unsaved[] = [];
  const saved = await mapPool(running, atOnce, async ({ sandbox, name }) => {
    try {
      await pauseSandbox(runtime, sandbox, { log: runtime.log });
      return name;
    } catch (error) {
      if (!sandbox.isDead) failed.push(notSaved(runtime, { sandbox, name, error }));
      return undefined;
    }
  });
  const names = saved.filter((name) => name !== undefined);
  const [first] = failed;
  if (first === undefined) return names;
  const others = failed.length > 1 ? ` and ${failed.length - 1} more` : "";
  throw new AppError(
    "workspace_not_saved",
    `Cannot stop the daemon: workspace "${first.name}"${others} could not be saved and keeps running: ${first.error}`,
    { details: { workspaces: failed, saved: names }, remedy: { action: "keep_or_force" } },
  );
}

/** Returns what happened to the machines. */
export async function closeSandboxes(
  runtime: Runtime,
  { onStop, force }: CloseOptions,
): Promise<ShutdownResult> {
  // A machine that is released in the middle of a capture would stay stopped until the next daemon adopts it.
  await runtime.work.end();
  const all = runtime.registry.all();
  const running = all.filter(({ state }) => state === "running").length;
  if (onStop === "keep") {
    await mapPool(all, atOnce, (sandbox) => keepSandbox(runtime, sandbox));
    return { stopped: 0, kept: running };
  }
  const saved: string[] = [];
  const unsaved: Unsaved[] = [];
  await mapPool(all, atOnce, async (sandbox) => {
    const { workspace: name } = sandbox.facts;
    if (name !== undefined && sandbox.state === "running") {
      const failure = await saveWorkspace(runtime, sandbox, name);
      if (failure === undefined) saved.push(name);
      else unsaved.push(failure);
      if (failure !== undefined && !force) return keepSandbox(runtime, sandbox);
    }
    return closeSandbox(runtime, sandbox);
  });
  const kept = force ? 0 : unsaved.length;
  return {
    stopped: running - kept,
    kept,
    ...(saved.length > 0 && { saved }),
    ...(unsaved.length > 0 && (force ? { lost: unsaved } : { unsaved })),
  };
}

async function saveWorkspace(runtime: Runtime, sandbox: Sandbox, name: string): Promise<Unsaved | undefined> {
  try {
    await sandbox.exclusively(undefined, (signal) => saveSandbox(runtime, sandbox, signal));
    return undefined;
  } catch (error) {
    // A sandbox without a machine has nothing left to save.
    return sandbox.state === "running" ? notSaved(runtime, { sandbox, name, error }) : undefined;
  }
}

function notSaved(
  runtime: Pick<Runtime, "log">,
  { sandbox, name, error }: { sandbox: Sandbox; name: string; error: unknown },
): Unsaved {
  runtime.log.error({
    event: "workspace.suspend",
    outcome: "failed",
    sandbox: sandbox.id,
    workspace: name,
    error,
  });
  return { id: sandbox.id, name, error: toAppError(error).message };
}

async function keepSandbox(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  runtime.registry.forget(sandbox.id);
  try {
    await saveUnreachable(runtime, sandbox);
    await sandbox.release();
  } catch (error) {
    runtime.log.error({ event: "sandbox.keep", outcome: "failed", sandbox: sandbox.id, error });
  }
}

async function saveUnreachable(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  const machine = sandbox.machineAtWork;
  if (!machine || (await runtime.engine.canAttach(machine.paths))) return;
  const log = { event: "sandbox.keep", sandbox: sandbox.id, socketDir: machine.paths.socketDir };
  try {
    await sandbox.exclusively(undefined, (signal) => saveSandbox(runtime, sandbox, signal));
    runtime.log.warn({ ...log, outcome: "paused", reason: "its sockets were removed" });
  } catch (error) {
    runtime.log.error({ ...log, outcome: "failed", error });
  }
}

async function closeSandbox(runtime: Runtime, sandbox: Sandbox): Promise<void> {
  // The next daemon lists the dead ones too.
  if (hasUnreadFiles(sandbox.status) || sandbox.isDead) return runtime.registry.forget(sandbox.id);
  if (!isRestorable(sandbox.status)) return runtime.registry.remove(sandbox.id);
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
