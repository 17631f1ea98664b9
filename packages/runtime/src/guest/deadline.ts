/**
 * How long a guest is waited for. Timeouts of commands are kept by the agent in the guest; a guest that is stuck, or lies, keeps
 * none, and must not hold a caller for ever.
 */
import { AppError } from "@forkd/contract";
import { withDeadline } from "@forkd/base";

const answerMs = 30_000;
const graceMs = 10_000;
const maxTimerMs = 2 ** 31 - 1;

function silent(what: string): AppError {
  return new AppError("agent_unreachable", `The guest does not answer: ${what}`, {
    remedy: { action: "show_logs" },
  });
}

/** For what an agent does at once. */
export function withReplyDeadline<T>(what: string, work: Promise<T>): Promise<T> {
  return withDeadline(work, answerMs, () => silent(what));
}

/** For work with a timeout of its own (0 = none); after an abort, which the guest is told of, it has a moment to end. */
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
