/** The agent that clients of E2B expect on port 49983: services of Connect, and files over HTTP. */
import { AppError, toAppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { connectCodeOf } from "../connect/codes.ts";
import { serveMethod } from "../connect/methods.ts";
import { sendEmpty, sendJson } from "../http/answer.ts";
import { goneBody, hasEnded, isGone, requireReachable } from "../http/gone.ts";
import type { E2bRequest, E2bSandboxes } from "../types.ts";
import { basicUser, requireFileAccess, requireToken } from "./access.ts";
import type { EnvdCall } from "./call.ts";
import { receiveFiles, sendFile } from "./content.ts";
import { GuestUsers } from "./guest-users.ts";
import { createMethods } from "./methods.ts";

type EnvdServer = (request: E2bRequest, id: string) => Promise<AppError | undefined>;

export function createEnvd({
  runtime,
  sandboxes,
  users,
}: {
  runtime: Runtime;
  sandboxes: E2bSandboxes;
  users: GuestUsers;
}): EnvdServer {
  const methods = createMethods();
  const calls = (request: E2bRequest, id: string, user: string | undefined) => (signal: AbortSignal) => ({
    runtime,
    users,
    id,
    user,
    defaults: sandboxes.defaultsOf(id),
    context: { ...request.context, signal },
  });

  const serveRpc = (request: E2bRequest, id: string, path: string): Promise<AppError | undefined> => {
    const { headers } = request.incoming;
    const method = methods.get(path);
    if (!method) throw new AppError("not_found", `Cannot find the method "${path}"`);
    const begin = (signal: AbortSignal): EnvdCall => {
      requireToken(headers, sandboxes.of(id));
      requireReachable(runtime, id);
      return calls(request, id, basicUser(headers))(signal);
    };
    return serveMethod(request, { method, call: begin, breaksOn: (error) => hasEnded(runtime, id, error) });
  };

  const serveFiles = async (request: E2bRequest, id: string, query: URLSearchParams) => {
    const { incoming, outgoing, context } = request;
    const { method, headers } = incoming;
    if (method !== "GET" && method !== "POST")
      throw new AppError("method_not_allowed", `Cannot ${method} files: use GET or POST`);
    requireFileAccess({ headers, query, operation: method === "GET" ? "read" : "write" }, sandboxes.of(id));
    requireReachable(runtime, id);
    const isSigned = query.has("signature") && headers["x-access-token"] === undefined;
    // A signature is for the user in the query, or for the default one.
    const user = query.get("username") || (isSigned ? undefined : basicUser(headers));
    const call = calls(request, id, user)(context.signal);
    const path = query.get("path") ?? undefined;
    if (method === "POST") return sendJson(request, 200, await receiveFiles(call, path, incoming));
    if (!path) throw new AppError("invalid_request", 'Cannot read the file: the query has no "path"');
    return sendFile(call, { path, acceptEncoding: headers["accept-encoding"] }, outgoing);
  };

  const serveHealth = (request: E2bRequest, id: string) => {
    // A look at a paused sandbox does not resume it.
    void runtime.registry.get(id).current;
    sendEmpty(request, 204);
  };

  return async (request, id) => {
    const { incoming, outgoing } = request;
    try {
      const { pathname, searchParams } = new URL(incoming.url ?? "/", "http://guest");
      if (pathname === "/health") return serveHealth(request, id) ?? undefined;
      if (pathname === "/files") return (await serveFiles(request, id, searchParams)) ?? undefined;
      if (incoming.method === "POST") return await serveRpc(request, id, pathname);
      throw new AppError("not_found", `Cannot find "${pathname}"`);
    } catch (error) {
      const failure = toAppError(error);
      if (outgoing.headersSent) outgoing.destroy();
      else if (isGone(failure)) sendJson(request, 502, goneBody(id, failure));
      else sendJson(request, fileStatus(failure), { code: fileStatus(failure), message: failure.message });
      return failure;
    }
  };
}

/** Status of an error that is not one of a Connect method */
function fileStatus(error: AppError): number {
  if (error.code === "disk_full") return 507;
  if (error.code === "method_not_allowed") return 405;
  const code = connectCodeOf(error);
  const statuses = {
    not_found: 404,
    invalid_argument: 400,
    unauthenticated: 401,
    permission_denied: 403,
  } as const;
  if (code in statuses) return statuses[code as keyof typeof statuses];
  if (code === "resource_exhausted") return 429;
  return code === "unimplemented" ? 501 : 500;
}
