/** Connects the server of ports with the runtime. */
import { enterPort, findPort, type Runtime } from "@forkd/runtime";
import type { Gate } from "../access/gate.ts";
import { parsePortsDomain } from "../access/port-name.ts";
import { PortServer, type PortBackend } from "./port-server.ts";

export function openPorts(
  runtime: Runtime,
  { domains, gate }: { domains: readonly string[]; gate: Gate },
): PortServer {
  const backend: PortBackend = {
    find: (target) => findPort(runtime, target),
    enter: (target, context) => enterPort(runtime, { ...context, ...target }),
    hold: ({ id, port }, cut) => runtime.ports.hold(id, port, cut),
  };
  return new PortServer({ backend, domains: domains.flatMap((text) => parsePortsDomain(text) ?? []), gate });
}
