/** Ports of a sandbox that can be reached through the daemon. */
import { z } from "zod";
import { inSandbox, sandboxPath } from "./ids.ts";
import { noAnswer, route } from "./route.ts";

const portRule = "must be a port, 1 to 65535";
const portSchema = z
  .int(portRule)
  .min(1, portRule)
  .max(65_535, portRule)
  .meta({ description: "TCP port in the guest" });
/** In a path. */
const portInPath = z.coerce
  .number()
  .int(portRule)
  .min(1, portRule)
  .max(65_535, portRule)
  .meta({ description: "TCP port in the guest" });

const openPortSchema = inSandbox.extend({
  port: portSchema,
  public: z
    .boolean()
    .default(false)
    .meta({ description: "Requests to its host name need no token; default: false" }),
  ttl_secs: z
    .int()
    .min(1)
    .max(31_536_000)
    .optional()
    .meta({ description: "The port closes after this time; default: when the sandbox ends" }),
});

const portInfoSchema = z.object({
  port: z.number(),
  public: z.boolean(),
  /** address with the host name of the port; absent while the daemon does not listen on TCP */
  url: z.string().optional(),
  /** path of the API below which requests go to the port */
  path: z.string(),
  opened_at_unix: z.number(),
  expires_at_unix: z.number().optional(),
  /** connections to the port at the moment */
  connections: z.number(),
});
export type PortInfo = z.output<typeof portInfoSchema>;

const openedPortSchema = portInfoSchema.extend({
  token: z
    .string()
    .optional()
    .meta({ description: "Opens the host name of a port that is not public; only in this answer" }),
});
export type OpenedPort = z.output<typeof openedPortSchema>;

export const portRoutes = {
  openPort: route({
    method: "post",
    path: `${sandboxPath}/ports`,
    summary: "Open a port; if it is open, change it and keep its token",
    status: 201,
    kind: "json",
    scope: "run",
    input: openPortSchema,
    output: openedPortSchema,
  }),
  listPorts: route({
    method: "get",
    path: `${sandboxPath}/ports`,
    summary: "Open ports, without their tokens",
    status: 200,
    kind: "json",
    scope: "read",
    input: inSandbox,
    output: z.array(portInfoSchema),
  }),
  closePort: route({
    method: "delete",
    path: `${sandboxPath}/ports/{port}`,
    summary: "Close a port and the connections to its host name",
    status: 204,
    kind: "json",
    scope: "run",
    input: inSandbox.extend({ port: portInPath }),
    output: noAnswer,
  }),
} as const;

/** Requests that are passed to a port. They have any method, body and answer, so they are not in the table. */
export const passedRoutes = {
  proxyPort: {
    path: `${sandboxPath}/ports/{port}/proxy/{path}`,
    summary:
      "Pass a request with any method to a port; the guest gets the rest of the path. Takes WebSocket upgrades",
    scope: "run",
  },
  connectPort: {
    path: `${sandboxPath}/ports/{port}/tcp`,
    summary: "Connect to a port: with `Upgrade: forkd-tcp` the connection carries raw bytes after status 101",
    scope: "run",
  },
} as const;
