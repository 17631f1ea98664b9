/** Changes the timeouts of a sandbox, kills or pauses it when one is over, and resumes it for a call. */
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { explainEnd } from "../sandbox/exit-reason.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { pause, resume } from "./pause.ts";

/** between two attempts to pause a sandbox whose time to live is over */
const againSecs = 60;

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
  if (runtime.registry.find(sandbox.id) !== sandbox || runtime.closing.signal.aborted) return;
  const { onTimeout } = sandbox.timeouts;
  runtime.log.info({ event: "sandbox.expired", sandbox: sandbox.id, cause, action: onTimeout });
  if (onTimeout === "kill") {
    const reason = cause === "ttl" ? "its time to live is over" : "it was left alone for its idle timeout";
    return runtime.registry.remove(sandbox.id, "sandbox.expired", reason).catch(() => undefined);
  }
  try {
    // A call may have come while the pause waited for the lock.
    const unless = () => cause === "idle" && runtime.activity.isActive(sandbox);
    await pause(runtime, { id: sandbox.id }, { log: runtime.log }, unless);
  } catch (error) {
    if (runtime.registry.find(sandbox.id) !== sandbox || sandbox.state !== "running") return;
    runtime.log.error({ event: "sandbox.expired", outcome: "failed", sandbox: sandbox.id, error });
    if (cause === "ttl") {
      sandbox.postponeExpiry(againSecs);
      runtime.registry.schedule(sandbox);
    } else runtime.activity.watch(sandbox);
  }
}

export type Call = Disposable & {
  /** What to tell of a failure: why the machine ended, if it did. */
  explain: (error: unknown) => Promise<unknown>;
};

/** Resumes the sandbox for a call if auto-resume is on. Counts as activity until the result is disposed. */
export async function enterSandbox(runtime: Runtime, id: string, context: Context): Promise<Call> {
  const sandbox = runtime.registry.get(id);
  const call = runtime.activity.begin(sandbox);
  try {
    if (sandbox.needsResume && sandbox.timeouts.autoResume) await wake(runtime, sandbox, context);
    const machine = sandbox.machineAtWork;
    return {
      explain: (error) => explainEnd(sandbox, machine, error),
      [Symbol.dispose]: () => call[Symbol.dispose](),
    };
  } catch (error) {
    call[Symbol.dispose]();
    throw error;
  }
}

async function wake(runtime: Runtime, sandbox: Sandbox, context: Context): Promise<void> {
  try {
    await resume(runtime, { id: sandbox.id }, context);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError(error.code, `Cannot resume ${sandbox.id} for this call: ${error.message}`, {
      details: { ...error.details, id: sandbox.id },
      cause: error,
    });
  }
}
