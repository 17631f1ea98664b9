/** What every operation gets beside its request. */
import type { Logger } from "@forkd/base";

export type Context = {
  /** fires when the caller has gone */
  signal?: AbortSignal | undefined;
  log: Logger;
};
