/** The code interpreter that clients of E2B expect on port 49999. */
import { AppError, toAppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { z } from "zod";
import { connectCodeOf, connectStatus } from "../connect/codes.ts";
import { parseMessage } from "../connect/messages.ts";
import { requireEitherToken, requireToken } from "../envd/access.ts";
import type { EnvdCall } from "../envd/call.ts";
import type { GuestUsers } from "../envd/guest-users.ts";
import { sendEmpty, sendJson, sendText } from "../http/answer.ts";
import { readBody } from "../http/body.ts";
import { goneBody, hasEnded, isGone, requireReachable } from "../http/gone.ts";
import type { E2bRequest, E2bSandboxes } from "../types.ts";
import { CodeContexts } from "./contexts.ts";
import { execute, executeSchema } from "./execute.ts";
import { LineWriter } from "./lines.ts";

const maxBodyBytes = 32 * 1024 * 1024;
const keepaliveMs = 5_000;

const contextSchema = z.object({ language: z.string().optional(), cwd: z.string().optional() });

type Interpreter = (request: E2bRequest, id: string) => Promise<AppError | undefined>;

export function createInterpreter({
  runtime,
  sandboxes,
  users,
}: {
  runtime: Runtime;
  sandboxes: E2bSandboxes;
  users: GuestUsers;
}): Interpreter {
  const contexts = new CodeContexts();

  const serveContexts = async (request: E2bRequest, call: EnvdCall, path: string): Promise<void> => {
    const { method, headers } = request.incoming;
    const tokens = { token: sandboxes.of(call.id), trafficToken: sandboxes.trafficTokenOf(call.id) };
    requireEitherToken(headers, tokens);
    const [, written, action] = /^\/contexts(?:\/([^/]+)(\/restart)?)?$/.exec(path) ?? [];
    const id = written === undefined ? undefined : decoded(written);
    if (id === undefined && method === "GET") return sendJson(request, 200, await contexts.list(call));
    if (id === undefined && method === "POST") {
      const asked = parseMessage(contextSchema, await readBody(request.incoming, maxBodyBytes));
      return sendJson(request, 200, await contexts.create(call, asked));
    }
    if (id !== undefined && action && method === "POST") await contexts.restart(call, id);
    else if (id !== undefined && !action && method === "DELETE") await contexts.remove(call, id);
    else throw new AppError("not_found", `Cannot ${method} "${path}"`);
    sendEmpty(request, 200);
  };

  const serveExecution = async (request: E2bRequest, call: EnvdCall): Promise<AppError | undefined> => {
    const { incoming, outgoing, context } = request;
    requireToken(incoming.headers, sandboxes.of(call.id));
    const asked = parseMessage(executeSchema, await readBody(incoming, maxBodyBytes));
    const execution = await execute(call, asked, contexts);
    outgoing.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store" });
    outgoing.flushHeaders();
    using lines = new LineWriter(outgoing, keepaliveMs);
    let failure: AppError | undefined;
    try {
      await execution(lines);
    } catch (error) {
      failure = toAppError(error);
      if (context.signal.aborted) return undefined;
      if (hasEnded(runtime, call.id, failure)) throw failure;
      await lines.finish();
      await lines.line({ type: "error", name: "ExecutionError", value: failure.message, traceback: "" });
    }
    await lines.line({ type: "end_of_execution" });
    outgoing.end();
    return failure;
  };

  return async (request, id) => {
    const { incoming, outgoing, context } = request;
    try {
      const { pathname } = new URL(incoming.url ?? "/", "http://guest");
      requireReachable(runtime, id);
      const call = { runtime, users, id, user: undefined, defaults: sandboxes.defaultsOf(id), context };
      if (pathname === "/health") return sendText(request, 200, "OK") ?? undefined;
      if (pathname === "/execute" && incoming.method === "POST") return await serveExecution(request, call);
      if (pathname.startsWith("/contexts"))
        return (await serveContexts(request, call, pathname)) ?? undefined;
      throw new AppError("not_found", `Cannot find "${pathname}"`);
    } catch (error) {
      const failure = toAppError(error);
      if (outgoing.headersSent) outgoing.destroy();
      else if (isGone(failure)) sendJson(request, 502, goneBody(id, failure));
      else sendText(request, statusOf(failure), failure.message);
      return failure;
    }
  };
}

/** What is not percent-encoded UTF-8 is the id of no context. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A language that a sandbox does not have is an error of the request. */
function statusOf(error: AppError): number {
  return error.code === "unsupported" ? 400 : connectStatus[connectCodeOf(error)];
}
