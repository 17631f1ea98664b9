/** What every operation gets besides its request. */
import type { Logger } from "@forkd/base";
import type { PolicyText } from "@forkd/egress";

/** The key that made the request. */
export type Caller = {
  readonly name: string;
  /** for all sandboxes of that name together */
  readonly limits?: { readonly sandboxes?: number | undefined; readonly memoryMib?: number | undefined };
  /** what its sandboxes may not exceed */
  readonly network?: PolicyText | undefined;
  /** secrets that its sandboxes may have; absent: all */
  readonly secrets?: readonly string[] | undefined;
};

export type Context = {
  /** fires when the caller has gone */
  signal?: AbortSignal | undefined;
  log: Logger;
  /** when the request arrived, of performance.now(), for a trace */
  receivedAt?: number | undefined;
  /** absent if the daemon itself makes the call */
  caller?: Caller | undefined;
  /** Disposes it when the answer is encoded, for memory that the answer uses. Absent: when the operation ends. */
  untilAnswered?: ((held: Disposable) => void) | undefined;
};
