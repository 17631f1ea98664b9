/** Follows the events of the daemon and reconnects after a lost connection. */
import { AppError } from "@forkd/contract/wire";
import type { EventType, RequestOf } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { refuseUnknown } from "./convert/request.ts";
import { cancelled } from "./errors.ts";
import { pause } from "./sleep.ts";
import type { ForkdEvent } from "./types.ts";

/** Options of `forkd.events()`. Filters are combined: an event must match all of them. */
export type EventOptions = CallOptions & {
  /** Only these types; `sandbox.*`, `snapshot.*`, `network.*` and `port.*` match all of a kind; default: all. */
  types?: readonly (EventType | "sandbox.*" | "snapshot.*" | "network.*" | "port.*")[] | undefined;
  /** Only events of the sandbox with this id; default: all. */
  sandbox?: string | undefined;
  /** Only events of the snapshot with this tag and of its children; default: all. */
  tag?: string | undefined;
  /** Only events of sandboxes with all of these labels, `name` or `name=value`; default: all. */
  labels?: readonly string[] | undefined;
  /** Id of an event to continue after; default: only new events. */
  after?: string | undefined;
  /** How long to try to reconnect, in ms; 0: not at all; default: 30000. */
  retryMs?: number | undefined;
};

const retry = { firstMs: 100, longestMs: 5000, forMs: 30_000 };

/**
 * Continues after the last event when it reconnects. If events may be missing, because the daemon restarted
 * or the reader was too slow, the next event is `reset`: the caller should list again.
 */
export async function* followEvents(client: Client, options: EventOptions): AsyncGenerator<ForkdEvent> {
  refuseUnknown("events", options, ["types", "sandbox", "tag", "labels", "after", "retryMs"]);
  const { signal, timeoutMs, retryMs = retry.forMs } = options;
  let last = options.after;
  let lostAt: number | undefined;
  let waitMs = retry.firstMs;
  for (;;) {
    try {
      const events = await client.events(requestOf(options), { signal, timeoutMs, lastEventId: last });
      lostAt = undefined;
      waitMs = retry.firstMs;
      for await (const event of events) {
        last = event.id;
        if (event.type === "revoked")
          throw new AppError("unauthenticated", event.reason ?? "The stream was ended");
        // The daemon closes the connection now. An unknown id makes the next one begin with `reset`.
        if (event.type === "overflow") last = `${"0".repeat(12)}-0`;
        else yield fromWire(event);
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
