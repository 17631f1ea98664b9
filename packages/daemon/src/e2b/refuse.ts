/** Errors about a sandbox, as E2B's proxy words them: clients take 502 for a sandbox that does not run. */
import type { ServerResponse } from "node:http";
import { errorCodes, httpRemedy, type AppError, type ErrorCode } from "@forkd/contract";
import { sendAnswer, type Target } from "@forkd/e2b";

const gone: readonly ErrorCode[] = ["sandbox_not_found", "sandbox_dead", "sandbox_paused"];
const closed: readonly ErrorCode[] = ["port_refused", "port_not_open"];

export function refuseInSandbox(outgoing: ServerResponse, { id, port }: Target, error: AppError): void {
  if (outgoing.headersSent || outgoing.destroyed) {
    outgoing.destroy();
    return;
  }
  const { code } = error;
  if (gone.includes(code))
    return send(outgoing, 502, { sandboxId: id, message: "The sandbox was not found" });
  if (closed.includes(code)) {
    const message = "The sandbox is running but port is not open";
    return send(outgoing, 502, { sandboxId: id, message, port });
  }
  // E2B's proxy refuses with 403; 401 is the answer of the agent.
  const isTraffic = code === "unauthenticated" && error.remedy?.action === "give_port_token";
  const remedy = error.remedy ? `. ${httpRemedy(error.remedy)}` : "";
  send(outgoing, isTraffic ? 403 : errorCodes[code].status, {
    sandboxId: id,
    message: error.message + remedy,
  });
}

function send(outgoing: ServerResponse, status: number, body: Record<string, unknown>): void {
  sendAnswer(outgoing, { status, body: { ...body, code: status } });
}
