/** One request of a guest on a connection that was opened: checked, rewritten, sent on, and its response. */
import type http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { AppError, toAppError } from "@forkd/contract";
import type { InterceptContext, ResponseFilter } from "../proxy/intercept.ts";
import { authorityOf } from "../secrets/hosts.ts";
import { faultInUrl, needlesFor, rewriteHeaders, type Host } from "../secrets/placeholders.ts";
import { Scrubber } from "../secrets/scrubber.ts";
import { copyBody } from "./body.ts";
import { grouped, isForHost, requestHeaders, responseHeaders, sizeOf, valuesOf } from "./headers.ts";

/** A model may think for minutes before it sends the next byte. */
export const silenceMs = 15 * 60_000;
export const maxHeaderBytes = 64 * 1024;
const maxDiscardedBytes = 1024 * 1024;

/** A guest's connection whose TLS was opened. */
export type Guest = {
  readonly host: Host;
  readonly context: InterceptContext;
  readonly agent: https.Agent;
};

export type GuestRequest = http.IncomingMessage | http2.Http2ServerRequest;
export type GuestResponse = http.ServerResponse | http2.Http2ServerResponse;

type Refusal = { readonly status: number; readonly reason: string };

type Outgoing = { readonly options: https.RequestOptions; readonly filter: Scrubber };

/** What is sent for a request, or why nothing is. */
export function outgoing(req: GuestRequest, { host, context, agent }: Guest): Outgoing | Refusal {
  const { method = "", url = "" } = req;
  const { secrets } = context;
  if (!isForHost(req.rawHeaders, host))
    return {
      status: 421,
      reason: `The request is for another host than its connection to "${authorityOf(host.name, host.port)}"`,
    };
  // TRACE asks the host to repeat the headers.
  if (method === "TRACE" || method === "CONNECT")
    return { status: 405, reason: `The method ${method} is refused` };
  if (!url.startsWith("/") && url !== "*") return { status: 400, reason: "The request target is not a path" };
  const fault = faultInUrl(url, host, secrets);
  if (fault !== undefined) return { status: 403, reason: fault };
  const rewritten = rewriteHeaders(requestHeaders(req.rawHeaders), host, secrets);
  if ("refused" in rewritten) return { status: 403, reason: rewritten.refused };
  const filter = new Scrubber([...needlesFor(host, secrets), ...rewritten.needles]);
  const headers = grouped(rewritten.headers);
  headers["Host"] = authorityOf(host.name, host.port);
  const encodings = valuesOf(req.rawHeaders, "accept-encoding").join(", ");
  // The filter finds values only in bodies without an encoding.
  headers["Accept-Encoding"] = filter.isEmpty && encodings !== "" ? encodings : "identity";
  const options = { agent, method, path: url, headers, timeout: silenceMs, maxHeaderSize: maxHeaderBytes };
  return { options, filter };
}

/** Forwards a request and its response. Reports every outcome to the guest and to the log. */
export async function forward(
  req: GuestRequest,
  res: GuestResponse,
  { guest, expectsContinue = false }: { guest: Guest; expectsContinue?: boolean },
): Promise<void> {
  res.on("error", () => undefined);
  req.on("error", () => undefined);
  const plan = outgoing(req, guest);
  if ("status" in plan) return refuse(req, res, { guest, refusal: plan });
  try {
    await guest.context.charge("out", sizeOf(req.rawHeaders) + (req.url ?? "").length);
    const length = req.headers["content-length"];
    const hasBody = bodyFollows(req);
    const headers = plan.options.headers as http.OutgoingHttpHeaders;
    // Node frames a body only of some methods unless it is asked to.
    if (hasBody && length === undefined) headers["Transfer-Encoding"] = "chunked";
    if (expectsContinue && hasBody) headers["Expect"] = "100-continue";
    if (!isGone(res)) send(req, res, { guest, plan, hasBody, isRetry: false });
  } catch (error) {
    fail(req, res, { guest, error });
  }
}

type Sending = { guest: Guest; plan: Outgoing; hasBody: boolean; isRetry: boolean };

function send(req: GuestRequest, res: GuestResponse, sending: Sending): void {
  const { guest, plan, hasBody, isRetry } = sending;
  let isAnswered = false;
  // No deadline: `timeout` of the options ends a silent connection, and connecting has its own.
  const up = https.request(plan.options);
  // More bytes than the header says would be a second request, which nothing has checked.
  Object.assign(up, { strictContentLength: true });
  const onClose = (): void => void up.destroy();
  res.once("close", onClose);
  const over = (error: unknown): void => {
    res.off("close", onClose);
    up.destroy();
    fail(req, res, { guest, error });
  };
  up.once("timeout", () =>
    over(
      new AppError("deadline_exceeded", `"${guest.host.name}" sent nothing for ${silenceMs / 60_000} min`),
    ),
  );
  up.once("continue", () => (isGone(res) ? undefined : res.writeContinue()));
  up.on("error", (error) => {
    if (isAnswered) return;
    isAnswered = true;
    res.off("close", onClose);
    // The host closed a kept connection at the moment of its reuse.
    const wasKept = up.reusedSocket && "code" in error && error.code === "ECONNRESET";
    const canRepeat = !isRetry && !hasBody && ["GET", "HEAD", "OPTIONS"].includes(req.method ?? "");
    if (wasKept && canRepeat && !isGone(res)) send(req, res, { ...sending, isRetry: true });
    else fail(req, res, { guest, error });
  });
  up.once("response", (answer) => {
    isAnswered = true;
    respond(req, res, { guest, answer, filter: plan.filter }).catch(over);
  });
  if (!hasBody) return void up.end();
  copyBody(req, up, {
    direction: "out",
    context: guest.context,
    onEnd: () => {
      if (Object.keys(req.trailers).length > 0)
        up.addTrailers(grouped(req.rawTrailers) as http.IncomingHttpHeaders);
    },
    onRefused: over,
  });
}

type Answer = { guest: Guest; answer: http.IncomingMessage; filter: Scrubber };

/** Sends the response of the host to the guest. Rejects if the machine may not receive it. */
export async function respond(req: GuestRequest, res: GuestResponse, reply: Answer): Promise<void> {
  const { guest, answer, filter } = reply;
  const { context } = guest;
  const cut = (error: unknown): void => {
    answer.destroy();
    fail(req, res, { guest, error });
  };
  answer.on("error", () => cut(new Error("the host closed the connection before the end of its response")));
  await context.charge("in", sizeOf(answer.rawHeaders));
  if (isGone(res)) return void answer.destroy();
  const status = answer.statusCode ?? 502;
  res.sendDate = false;
  writeHead(res, status, grouped(filter.headers(responseHeaders(answer.rawHeaders))));
  log(req, { guest, event: "request", status });
  copyBody(answer, res as http.ServerResponse, {
    direction: "in",
    context,
    filter: bodyFilter(answer, filter),
    onEnd: () => {
      const trailers = grouped(filter.headers(answer.rawTrailers));
      if (Object.keys(trailers).length > 0)
        (res as http.ServerResponse).addTrailers(trailers as NodeJS.Dict<string>);
    },
    onRefused: (error) => {
      log(req, { guest, event: "denied", reason: toAppError(error).message });
      cut(error);
    },
  });
  // Otherwise the guest would learn of the response only with its first byte.
  if (!isBodiless(req, status)) (res as http.ServerResponse).flushHeaders();
}

/** undefined for an encoded body, in which values cannot be found */
function bodyFilter(answer: http.IncomingMessage, filter: Scrubber): ResponseFilter | undefined {
  const encoding = answer.headers["content-encoding"] ?? "identity";
  return filter.isEmpty || encoding.trim().toLowerCase() !== "identity" ? undefined : filter;
}

function writeHead(res: GuestResponse, status: number, headers: http.OutgoingHttpHeaders): void {
  // The two classes take the same arguments, but their types have no common signature.
  (res as http.ServerResponse).writeHead(status, headers);
}

function isBodiless({ method }: GuestRequest, status: number): boolean {
  return method === "HEAD" || status === 204 || status === 304;
}

function bodyFollows(req: GuestRequest): boolean {
  if (req instanceof http2.Http2ServerRequest) return !req.stream.endAfterHeaders;
  const { "transfer-encoding": encoding, "content-length": length } = req.headers;
  return encoding !== undefined || (length !== undefined && Number(length) > 0);
}

function isGone(res: GuestResponse): boolean {
  return (
    res.destroyed || res.writableEnded || (res instanceof http2.Http2ServerResponse && res.stream.destroyed)
  );
}

const statusOf: Partial<Record<string, number>> = {
  forbidden: 403,
  capacity_exhausted: 503,
  deadline_exceeded: 504,
};

/** Answers with the reason, or cuts a response that has begun: a shortened one must not look complete. */
export function fail(
  req: GuestRequest,
  res: GuestResponse,
  { guest, error }: { guest: Guest; error: unknown },
): void {
  if (isGone(res) && !res.headersSent) return;
  if (res.headersSent) {
    if (res instanceof http2.Http2ServerResponse) res.stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    else res.destroy();
    return;
  }
  const isOurs = error instanceof AppError;
  const status = isOurs ? (statusOf[error.code] ?? 502) : 502;
  const { host } = guest;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  // Other messages may quote the request.
  const reason = isOurs
    ? error.message
    : `The request to "${host.name}" failed${code === "" ? "" : `: ${code}`}`;
  refuse(req, res, { guest, refusal: { status, reason } });
}

export function refuse(
  req: GuestRequest,
  res: GuestResponse,
  { guest, refusal: { status, reason } }: { guest: Guest; refusal: Refusal },
): void {
  log(req, { guest, event: status < 500 ? "denied" : "failed", status, reason });
  if (isGone(res)) return;
  const body = Buffer.from(`forkd: ${reason}\n`);
  const headers: http.OutgoingHttpHeaders = {
    "Content-Type": "text/plain; charset=utf-8",
    "Content-Length": body.length,
    "Cache-Control": "no-store",
  };
  writeHead(res, status, headers);
  (res as http.ServerResponse).end(body);
  discardBody(req, res, guest);
}

/**
 * Reads a little more of a request that was answered: closing a connection with unread bytes would discard the
 * answer with them.
 */
function discardBody(req: GuestRequest, res: GuestResponse, { context }: Guest): void {
  let left = maxDiscardedBytes;
  const stop = (): void => {
    if (res instanceof http2.Http2ServerResponse) res.stream.close(http2.constants.NGHTTP2_NO_ERROR);
    else req.socket.destroy();
  };
  req.on("data", (chunk: Buffer) => {
    left -= chunk.length;
    if (left < 0) return stop();
    try {
      const allowance = context.charge("out", chunk.length);
      if (allowance === undefined) return;
      req.pause();
      allowance.then(() => req.resume(), stop);
    } catch {
      // The machine has used up its bytes, and its answer is sent.
      stop();
    }
  });
}

function log(
  { method }: GuestRequest,
  entry: { guest: Guest; event: "request" | "denied" | "failed"; status?: number; reason?: string },
): void {
  const { guest, ...rest } = entry;
  const { name, port } = guest.host;
  guest.context.log({
    protocol: "tcp",
    via: "intercepted",
    name,
    port,
    method: method?.slice(0, 32),
    ...rest,
  });
}
