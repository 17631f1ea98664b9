/** `timeoutMs` of a call: how long it may take, its answer included. */
import { AppError, deadlineSignal, type DeadlineSignal } from "@forkd/contract/wire";

type Timed = { signal?: AbortSignal | undefined; timeoutMs?: number | undefined };

/** The longest time of a timer; a longer one would fire at once. */
const longestMs = 2 ** 31 - 1;

/** Runs a call; rejects with `deadline_exceeded` when its time is up. */
export async function within<O extends Timed, T>(
  name: string,
  options: O,
  work: (options: O) => Promise<T>,
): Promise<T> {
  const deadline = open(name, options);
  if (deadline === undefined) return work(options);
  try {
    return await work({ ...options, signal: deadline.signal });
  } catch (error) {
    throw explain(error, { name, deadline, timeoutMs: options.timeoutMs });
  } finally {
    deadline[Symbol.dispose]();
  }
}

/** The same for a call whose answer is a stream, which must end in time too. */
export async function streamWithin<O extends Timed, T>(
  name: string,
  options: O,
  work: (options: O) => Promise<AsyncIterable<T>>,
): Promise<AsyncGenerator<T>> {
  const deadline = open(name, options);
  const timed = { name, deadline, timeoutMs: options.timeoutMs };
  try {
    const source = await work(deadline === undefined ? options : { ...options, signal: deadline.signal });
    return follow(source, timed);
  } catch (error) {
    deadline?.[Symbol.dispose]();
    throw explain(error, timed);
  }
}

type Limit = { name: string; deadline: DeadlineSignal | undefined; timeoutMs: number | undefined };

async function* follow<T>(source: AsyncIterable<T>, limit: Limit): AsyncGenerator<T> {
  try {
    yield* source;
  } catch (error) {
    throw explain(error, limit);
  } finally {
    limit.deadline?.[Symbol.dispose]();
  }
}

function open(name: string, { signal, timeoutMs }: Timed): DeadlineSignal | undefined {
  if (timeoutMs === undefined || timeoutMs === 0) return undefined;
  if (typeof timeoutMs !== "number" || !(timeoutMs > 0))
    throw new AppError(
      "invalid_request",
      `Option "timeoutMs" of ${name} must be a number of milliseconds, not ${String(timeoutMs)}`,
      { details: { option: "timeoutMs" } },
    );
  return timeoutMs > longestMs ? undefined : deadlineSignal(timeoutMs, signal);
}

function explain(error: unknown, { name, deadline, timeoutMs }: Limit): unknown {
  if (!deadline?.isLate) return error;
  return new AppError("deadline_exceeded", `${name} did not end within ${timeoutMs} ms`, {
    details: { timeout_ms: timeoutMs },
    cause: error,
  });
}
