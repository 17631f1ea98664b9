/** Connects the server of ports with the runtime. */
import { AppError } from "@forkd/contract";
import { enterPort, findPort, type Runtime } from "@forkd/runtime";
import type { Gate } from "../access/gate.ts";
import { parsePortsDomain, type PortTarget } from "../access/port-name.ts";
import { PortServer, type PortBackend } from "./port-server.ts";

type Options = {
  readonly domains: readonly string[];
  readonly gate: Gate;
  /** for sandboxes all of whose ports can be reached without being opened one by one */
  readonly openByDefault?: ((id: string) => ReturnType<PortBackend["find"]> | undefined) | undefined;
};

export function openPorts(runtime: Runtime, { domains, gate, openByDefault }: Options): PortServer {
  const find = (target: PortTarget) => {
    try {
      return findPort(runtime, target);
    } catch (error) {
      const isClosed = error instanceof AppError && error.code === "port_not_open";
      const port = isClosed ? openByDefault?.(target.id) : undefined;
      if (port === undefined) throw error;
      return port;
    }
  };
  const backend: PortBackend = {
    find,
    enter: (target, context) => enterPort(runtime, { ...context, ...target }),
    hold: ({ id, port }, cut) => runtime.ports.hold(id, port, cut),
  };
  return new PortServer({ backend, domains: domains.flatMap((text) => parsePortsDomain(text) ?? []), gate });
}
