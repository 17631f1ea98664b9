/** Events of the daemon, across lost connections. */
import { AppError } from "@forkd/contract/wire";
import type { EventType, ForkdEvent, RequestOf } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { cancelled } from "./errors.ts";
import { pause } from "./sleep.ts";

export type EventOptions = CallOptions & {
  /** default: all; `sandbox.*` and `snapshot.*` are all of a kind */
  types?: readonly (EventType | "sandbox.*" | "snapshot.*")[] | undefined;
  sandbox?: string | undefined;
  /** of the snapshot, or of the one that the sandbox descends from */
  tag?: string | undefined;
  /** `name` or `name=value`; all must match */
  labels?: readonly string[] | undefined;
  /** id of the last event seen */
  after?: string | undefined;
  /** how long to try to get a lost connection back, in ms; 0 = not at all */
  retryMs?: number | undefined;
};

const retry = { firstMs: 100, longestMs: 5000, forMs: 30_000 };

/**
 * Goes on where a lost connection ended. Where that cannot be, because the daemon was started anew or the reader was too slow,
 * the next event is `reset`: what is known should be listed again.
 */
export async function* followEvents(client: Client, options: EventOptions): AsyncGenerator<ForkdEvent> {
  const { signal, retryMs = retry.forMs } = options;
  let last = options.after;
  let lostAt: number | undefined;
  let waitMs = retry.firstMs;
  for (;;) {
    try {
      const events = await client.events(requestOf(options), { signal, lastEventId: last });
      lostAt = undefined;
      waitMs = retry.firstMs;
      for await (const event of events) {
        last = event.id;
        if (event.type === "revoked")
          throw new AppError("unauthenticated", event.reason ?? "The stream was ended");
        // The connection ends after it; the one that follows begins with a reset of its own.
        if (event.type === "overflow") last = `${"0".repeat(12)}-0`;
        else yield event;
      }
    } catch (error) {
      if (!isLost(error)) throw error;
      lostAt ??= performance.now();
      if (performance.now() - lostAt >= retryMs) throw error;
    }
    if (retryMs === 0) return;
    lostAt ??= performance.now();
    await pause(waitMs, signal);
    if (signal?.aborted) throw cancelled(signal.reason);
    waitMs = Math.min(waitMs * 2, retry.longestMs);
  }
}

function requestOf({ types, sandbox, tag, labels }: EventOptions): RequestOf<"events"> {
  return {
    ...(types && { type: types.join(",") }),
    ...(sandbox !== undefined && { sandbox }),
    ...(tag !== undefined && { tag }),
    ...(labels && { label: [...labels] }),
  };
}

function isLost(error: unknown): boolean {
  return error instanceof AppError && error.code === "daemon_unreachable";
}
