/** What is known of a request before it is served, and what serves it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { AppError, Route } from "@forkd/contract";
import type { Via } from "../access/gate.ts";
import type { Trail } from "../audit/audit.ts";
import type { RequestContext } from "./handlers.ts";

export type Connection = {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly via: Via;
  /** The client wants to change the protocol; `outgoing` answers if that fails. */
  readonly upgrade?: { readonly socket: Duplex; readonly head: Buffer } | undefined;
};

export type Plan = {
  /** for the log, the audit log and metrics */
  readonly name: string;
  readonly route: Pick<Route, "scope" | "audit" | "log" | "endless">;
  /** Resolves with a failure that came after the status was sent. */
  readonly run: (context: RequestContext, trail: Trail) => Promise<AppError | undefined>;
  /** Decides in place of the gate: throws if the request is refused. */
  readonly admit?: (trail: Trail) => void;
  /** replaces the answer with an error in JSON */
  readonly refuse?: (error: AppError, requestId: string) => void;
  /** the audit log has a line of this connection already, so it gets another only for a refusal */
  readonly isAudited?: boolean;
};
