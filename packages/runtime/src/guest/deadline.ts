/**
 * Deadlines for guests. The agent in the guest enforces the timeouts of commands; a guest that hangs or lies
 * does not, and must not block a caller forever.
 */
import { AppError } from "@forkd/contract";
import { maxTimerMs, withDeadline } from "@forkd/base";
import { whileAnswering, type AgentClient } from "@forkd/machine";

function silent(what: string): AppError {
  return new AppError("agent_unreachable", `The guest does not answer: ${what}`, {
    remedy: { action: "show_logs" },
  });
}

/** For requests that an agent answers immediately. */
export function withReplyDeadline<T>(
  { deadlines }: Pick<AgentClient, "deadlines">,
  what: string,
  work: Promise<T>,
): Promise<T> {
  return withDeadline(work, deadlines.replyMs, () => silent(what));
}

/**
 * For work that has its own timeout (0 = none). A guest that falls silent before is given up at once. After an
 * abort, which is sent to the guest, the work has a short grace period.
 */
export function withExitDeadline<T>(
  agent: AgentClient,
  what: string,
  work: Promise<T>,
  options: { timeoutMs: number; signal: AbortSignal | undefined },
): Promise<T> {
  const { timeoutMs, signal } = options;
  const { graceMs } = agent.deadlines;
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
    whileAnswering(agent, "run the command", work).finally(done).then(resolve, reject);
  });
}
