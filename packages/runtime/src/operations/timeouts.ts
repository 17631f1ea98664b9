/** How long a sandbox may live and be left alone, what follows then, and calls that wake it. */
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { explainEnd } from "../sandbox/exit-reason.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { pause, resume } from "./pause.ts";

/** between two attempts to pause what is to be paused */
const againSecs = 60;

/** What is left out stays as it is. The time to live counts from now. */
export async function setTimeouts(
  runtime: Runtime,
  { id, ttl_secs: ttl, idle_timeout_secs: idle, ...rest }: ParsedOf<"setTimeouts">,
): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(id);
  await sandbox.exclusively(undefined, async () => {
    // Its record names a state that cannot be read; another would not name it.
    if (sandbox.unusable) throw sandbox.unusable;
    const { timeouts, ttlSecs, expiresAt } = sandbox;
    const before = { ...timeouts };
    if (ttl !== undefined) {
      sandbox.ttlSecs = ttl ?? undefined;
      if (sandbox.state === "running") sandbox.expiresAt = ttl === null ? undefined : Date.now() / 1000 + ttl;
    }
    if (idle !== undefined) timeouts.idleSecs = idle ?? undefined;
    if (rest.on_timeout !== undefined) timeouts.onTimeout = rest.on_timeout;
    if (rest.auto_resume !== undefined) timeouts.autoResume = rest.auto_resume;
    try {
      await sandbox.persist();
    } catch (error) {
      Object.assign(timeouts, before);
      Object.assign(sandbox, { ttlSecs, expiresAt });
      throw error;
    }
  });
  runtime.registry.schedule(sandbox);
  return sandbox.info();
}

/** Its time is over. Never rejects. */
export async function expire(runtime: Runtime, sandbox: Sandbox, cause: "ttl" | "idle"): Promise<void> {
  if (runtime.registry.find(sandbox.id) !== sandbox || runtime.closing.signal.aborted) return;
  const { onTimeout } = sandbox.timeouts;
  runtime.log.info({ event: "sandbox.expired", sandbox: sandbox.id, cause, action: onTimeout });
  if (onTimeout === "kill") {
    const reason = cause === "ttl" ? "its time to live is over" : "it was left alone for its idle timeout";
    return runtime.registry.remove(sandbox.id, "sandbox.expired", reason).catch(() => undefined);
  }
  try {
    // A call that came while others were busy with the sandbox has made it active again.
    const unless = () => cause === "idle" && runtime.activity.isActive(sandbox);
    await pause(runtime, { id: sandbox.id }, { log: runtime.log }, unless);
  } catch (error) {
    if (runtime.registry.find(sandbox.id) !== sandbox || sandbox.state !== "running") return;
    runtime.log.error({ event: "sandbox.expired", outcome: "failed", sandbox: sandbox.id, error });
    if (cause === "ttl") {
      sandbox.expiresAt = Date.now() / 1000 + againSecs;
      runtime.registry.schedule(sandbox);
    } else runtime.activity.watch(sandbox);
  }
}

export type Call = Disposable & {
  /** What to tell of a failure: why the machine ended, if it did. */
  explain: (error: unknown) => Promise<unknown>;
};

/** For a call into the sandbox: wakes it if it is to be woken, and counts as activity until the result is disposed. */
export async function enterSandbox(runtime: Runtime, id: string, context: Context): Promise<Call> {
  const sandbox = runtime.registry.get(id);
  const call = runtime.activity.begin(sandbox);
  try {
    if (sandbox.isAsleep && sandbox.timeouts.autoResume) await wake(runtime, sandbox, context);
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
      remedy: error.remedy,
      cause: error,
    });
  }
}
