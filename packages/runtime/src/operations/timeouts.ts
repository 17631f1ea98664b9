/** Changes the timeouts of a sandbox, and kills or pauses it when one is over. */
import { toAppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import { pauseSandbox } from "../capture/save-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** until the next attempt to pause a sandbox that could not be paused; twice as long after each failure */
const againSecs = 60;
const maxAgainSecs = 3600;

/** A field that is left out stays as it is. The time to live counts from now. */
export async function setTimeouts(runtime: Runtime, request: ParsedOf<"setTimeouts">): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(request.id);
  await sandbox.exclusively(undefined, async () => {
    // A new record would no longer name the saved state that this daemon cannot read.
    sandbox.requireResumable();
    await sandbox.setTimeouts(request.ttl_secs, {
      idleSecs: request.idle_timeout_secs,
      onTimeout: request.on_timeout,
      autoResume: request.auto_resume,
    });
  });
  runtime.registry.schedule(sandbox);
  return sandbox.info();
}

/** Kills or pauses a sandbox whose time is over. Never rejects. */
export async function expire(runtime: Runtime, sandbox: Sandbox, cause: "ttl" | "idle"): Promise<void> {
  if (runtime.registry.find(sandbox.id) !== sandbox || runtime.work.isClosing) return;
  const { onTimeout } = sandbox.timeouts;
  runtime.log.info({ event: "sandbox.expired", sandbox: sandbox.id, cause, action: onTimeout });
  if (onTimeout === "kill") {
    const reason = cause === "ttl" ? "its time to live is over" : "it was left alone for its idle timeout";
    return runtime.registry.remove(sandbox.id, "sandbox.expired", reason).catch(() => undefined);
  }
  try {
    // A call may have come while the pause waited for the lock.
    const unless = () => cause === "idle" && runtime.activity.isActive(sandbox);
    await pauseSandbox(runtime, sandbox, { log: runtime.log, unless });
  } catch (error) {
    if (runtime.registry.find(sandbox.id) !== sandbox || sandbox.state !== "running") return;
    runtime.log.error({ event: "sandbox.expired", outcome: "failed", sandbox: sandbox.id, error });
    const failures = sandbox.countPauseFailure(toAppError(error).message);
    const again = retrySecs(failures);
    if (cause === "ttl") {
      sandbox.postponeExpiry(again);
      runtime.registry.schedule(sandbox);
    } else runtime.activity.watch(sandbox, again);
  }
}

/** How long to wait after so many failures in a row. */
export function retrySecs(failures: number): number {
  return Math.min(maxAgainSecs, againSecs * 2 ** Math.min(failures - 1, 10));
}
