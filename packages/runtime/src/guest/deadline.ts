/**
 * Deadlines for guests. The agent in the guest enforces the timeouts of commands; a guest that hangs or lies
 * does not, and must not block a caller forever.
 */
import { AppError } from "@forkd/contract";
import { maxTimerMs, withDeadline } from "@forkd/base";

const answerMs = 30_000;
const graceMs = 10_000;

function silent(what: string): AppError {
  return new AppError("agent_unreachable", `The guest does not answer: ${what}`, {
    remedy: { action: "show_logs" },
  });
}

/** For requests that an agent answers immediately. */
export function withReplyDeadline<T>(what: string, work: Promise<T>): Promise<T> {
  return withDeadline(work, answerMs, () => silent(what));
}

/**
 * For work that has its own timeout (0 = none). After an abort, which is sent to the guest, it has a short
 * grace period.
 */
export function withExitDeadline<T>(
  what: string,
  work: Promise<T>,
  options: { timeoutMs: number; signal: AbortSignal | undefined },
): Promise<T> {
  const { timeoutMs, signal } = options;
  return new Promise((resolve, reject) => {
    const late = () => reject(silent(what));
    let timer = timeoutMs > 0 ? setTimeout(late, Math.min(timeoutMs + graceMs, maxTimerMs)) : undefined;
    const hurry = () => {
      clearTimeout(timer);
      timer = setTimeout(late, graceMs);
    };
    if (signal?.aborted) hurry();
    signal?.addEventListener("abort", hurry, { once: true });
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", hurry);
    };
    work.finally(done).then(resolve, reject);
  });
}
