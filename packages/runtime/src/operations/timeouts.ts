/** How long a sandbox may live and be idle, and what follows. */
import type { ParsedOf, SandboxInfo } from "@forkd/contract";
import { pauseSandbox } from "../capture/save-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

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
  if (runtime.registry.find(sandbox.id) !== sandbox || runtime.work.isClosing) return;
  const { onTimeout } = sandbox.timeouts;
  runtime.log.info({ event: "sandbox.expired", sandbox: sandbox.id, cause, action: onTimeout });
  if (onTimeout === "kill") {
    const reason = cause === "ttl" ? "its time to live is over" : "it was left alone for its idle timeout";
    return runtime.registry.remove(sandbox.id, "sandbox.expired", reason).catch(() => undefined);
  }
  try {
    // A call that came while others were busy with the sandbox has made it active again.
    const unless = () => cause === "idle" && runtime.activity.isActive(sandbox);
    await pauseSandbox(runtime, sandbox, { log: runtime.log, unless });
  } catch (error) {
    if (runtime.registry.find(sandbox.id) !== sandbox || sandbox.state !== "running") return;
    runtime.log.error({ event: "sandbox.expired", outcome: "failed", sandbox: sandbox.id, error });
    if (cause === "ttl") {
      sandbox.expiresAt = Date.now() / 1000 + againSecs;
      runtime.registry.schedule(sandbox);
    } else runtime.activity.watch(sandbox);
  }
}
