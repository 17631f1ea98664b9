/** Ports of sandboxes, with the addresses under which the daemon serves them. */
import { listPorts, openPort } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";

export function portHandlers({ runtime, ports }: Pick<Daemon, "runtime" | "ports">) {
  return {
    openPort: async (input) => ports.describe(input.id, await openPort(runtime, input)),
    listPorts: (input) => listPorts(runtime, input).map((each) => ports.describe(input.id, each)),
  } satisfies Partial<Handlers>;
}
