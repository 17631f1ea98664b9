/** Applies the configured retention of branches at an interval. */
import { removeBranches, type Policy } from "./expired-branches.ts";
import type { Runtime } from "../runtime.ts";

const daySecs = 86_400;

/** Disposing the result stops it. */
export function startRetention(runtime: Runtime): Disposable {
  const { gcIntervalSecs, retention } = runtime.quota;
  const policy: Policy = {
    ...(retention.maxAgeDays > 0 && { older_than_secs: retention.maxAgeDays * daySecs }),
    ...(retention.keepLast > 0 && { keep_last: retention.keepLast }),
  };
  if (gcIntervalSecs === 0 || Object.keys(policy).length === 0) return { [Symbol.dispose]: () => undefined };
  let running = false;
  const timer = setInterval(() => {
    if (running || runtime.work.isClosing) return;
    running = true;
    void collect(runtime, policy).finally(() => (running = false));
  }, gcIntervalSecs * 1000);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

async function collect(runtime: Runtime, policy: Policy): Promise<void> {
  try {
    const removed = await runtime.work.whileOpen(undefined, () =>
      removeBranches(runtime, { ...policy, dry_run: false }),
    );
    if (removed.length > 0) runtime.log.info({ event: "gc.run", outcome: "ok", removed });
  } catch (error) {
    runtime.log.error({ event: "gc.run", outcome: "failed", error });
  }
}
