/** The result of a handler → an answer in the form that its route names. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AppError, Route } from "@forkd/contract";
import type { Listener } from "@forkd/runtime";
import { sendEvents } from "./events.ts";
import { sendJson, sendText } from "./json.ts";
import { sendBytes, sendLines } from "./lines.ts";
import { answerPage, Page } from "./page.ts";

/** The one text that is served is the exposition of Prometheus. */
const metricsType = "text/plain; version=0.0.4; charset=utf-8";

type ResultOptions = {
  readonly incoming: IncomingMessage;
  readonly route: Route;
  readonly input: Readonly<Record<string, unknown>>;
  readonly requestId: string;
  readonly signal: AbortSignal;
};

/** Resolves with a failure that came after the status was sent. */
export async function sendResult(
  outgoing: ServerResponse,
  result: unknown,
  { incoming, route, input, requestId, signal }: ResultOptions,
): Promise<AppError | undefined> {
  const stream = { status: route.status, requestId, signal };
  // The type Handlers ties the kind of the route to the form of its result.
  if (route.kind === "bytes") return sendBytes(outgoing, result as AsyncIterable<Uint8Array>, stream);
  if (route.kind === "events" || (route.streamed && input["stream"] === true))
    return sendLines(outgoing, result as AsyncIterable<unknown>, stream);
  if (route.kind === "sse") return sendEvents(outgoing, result as Listener, { signal });
  if (route.kind === "text")
    sendText(outgoing, result as string, { status: route.status, type: metricsType });
  else if (result instanceof Page) sendJson(outgoing, route.status, answerPage(outgoing, incoming, result));
  else sendJson(outgoing, statusOf(route, result), result);
  return undefined;
}

export function statusOf(route: Route, result: unknown): number {
  return isPending(result) ? (route.pendingStatus ?? route.status) : route.status;
}

/** The snapshot that was asked for is still being written. */
function isPending(result: unknown): boolean {
  return typeof result === "object" && result !== null && "status" in result && result.status === "writing";
}
