/** What every operation gets beside its request. */
import type { Logger } from "@forkd/base";

/** Who asks. */
export type Caller = {
  readonly name: string;
  /** what all sandboxes of that name together may be */
  readonly limits?: { readonly sandboxes?: number | undefined; readonly memoryMib?: number | undefined };
};

export type Context = {
  /** fires when the caller has gone */
  signal?: AbortSignal | undefined;
  log: Logger;
  /** absent where the daemon itself asks */
  caller?: Caller | undefined;
};
