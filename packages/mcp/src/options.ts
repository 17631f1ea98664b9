import type { Forkd } from "@forkd/sdk";

/** What both transports need. */
export type ServeOptions = {
  /** Connects to the daemon; called when a tool first needs it. */
  readonly connect: () => Promise<Forkd>;
  /** Version of forkd, for clients. */
  readonly version: string;
  /** Writes one line for the operator. */
  readonly log: (text: string) => void;
  /** Ends the server. */
  readonly signal: AbortSignal;
  /** Kill the sandboxes that were created through this server when it ends. */
  readonly killOnExit: boolean;
  /** Time to live of sandboxes that are created without one; default: no limit. */
  readonly ttlSecs?: number | undefined;
};
