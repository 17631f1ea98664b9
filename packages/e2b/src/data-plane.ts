/** Requests to the agent and the code interpreter of a sandbox. */
import { AppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { GuestUsers } from "./envd/guest-users.ts";
import { createEnvd } from "./envd/server.ts";
import { sendJson } from "./http/answer.ts";
import { createInterpreter } from "./interpreter/server.ts";
import { envdPort, interpreterPort, type DataPlane, type E2bSandboxes } from "./types.ts";

export function dataPlane({
  runtime,
  tokens: sandboxes,
}: {
  runtime: Runtime;
  tokens: E2bSandboxes;
}): DataPlane {
  const users = new GuestUsers(runtime);
  const envd = createEnvd({ runtime, sandboxes, users });
  const interpreter = createInterpreter({ runtime, sandboxes, users });
  return {
    serve: async (request, { id, port }) => {
      if (port === envdPort) return envd(request, id);
      if (port === interpreterPort) return interpreter(request, id);
      const message = "The sandbox is running but port is not open";
      sendJson(request, 502, { sandboxId: id, message, port, code: 502 });
      return new AppError("port_refused", message);
    },
  };
}
