/** What the parts of this package share: control plane, data plane and the daemon that serves both. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AppError } from "@forkd/contract";
import type { Context } from "@forkd/runtime";

export type E2bRequest = {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** `signal` fires when the client closes the connection, or loses the right to the answer. */
  readonly context: E2bContext & { readonly requestId: string };
};

export type E2bContext = Context & {
  readonly signal: AbortSignal;
  /** Tells the audit log which command or code the request runs. */
  readonly note?: ((command: Command) => void) | undefined;
};
type Command = { readonly args: readonly string[] } | { readonly code: string };

/** A port of a sandbox. */
export type Target = { readonly id: string; readonly port: number };

/** The port under which clients reach the agent of E2B */
export const envdPort = 49_983;
/** … and the code interpreter */
export const interpreterPort = 49_999;
/** What the data plane implements; clients switch features on by it. */
export const envdVersion = "0.6.13";

/** Access tokens of the sandboxes that were created with E2B's API. */
export type AccessTokens = {
  /** undefined if the sandbox is not secured, or not created with E2B's API */
  of(id: string): string | undefined;
  /** every secured sandbox */
  all(): Iterable<{ readonly id: string; readonly token: string }>;
};

/** How commands run in a sandbox unless a call says otherwise; from the template that it was created from. */
export type SandboxDefaults = {
  readonly templateId: string;
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
};

export type E2bSandboxes = AccessTokens & {
  /** the other token of the sandbox, which clients send to ports and contexts */
  trafficTokenOf(id: string): string | undefined;
  /** undefined if the sandbox was not created with E2B's API */
  defaultsOf(id: string): SandboxDefaults | undefined;
};

/** Serves requests to `envdPort` and `interpreterPort` of a sandbox. */
export type DataPlane = {
  /**
   * Answers the request in full, also with errors. Resolves with the failure for the log, if there was one.
   * The caller has checked that the sandbox exists; a paused or dead one answers 502.
   */
  serve(request: E2bRequest, target: Target): Promise<AppError | undefined>;
};
