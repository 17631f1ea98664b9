/** A connection to a TCP port of the guest. */
import type { Duplex } from "node:stream";
import { withDeadline } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { connectTcp, type AgentClient } from "@forkd/machine";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

/** How long the agent connects at once after the direct way was refused, so that not every connection pays for both */
const refusedMs = 10_000;
const refusedUntil = new WeakMap<SandboxMachine, Map<number, number>>();

/**
 * Resolves when the server in the guest has accepted. The connection ends with the machine. Throws
 * `port_refused`, `capacity_exhausted`, or what happened to the machine.
 */
export async function connectPort(
  { ports }: Pick<Runtime, "ports">,
  sandbox: Sandbox,
  port: number,
): Promise<Duplex> {
  const machine = sandbox.current;
  ports.requireRoom(machine, port);
  const direct = ports.direct && (await tryDirect(ports.direct, machine, port));
  const stream = direct ?? (await overAgent(sandbox.id, machine.agent, port));
  // Its user sees "close". Without a listener a failure between two users would end the daemon.
  stream.on("error", () => undefined);
  ports.add(machine, port, stream);
  return stream;
}

async function tryDirect(
  connect: NonNullable<Runtime["ports"]["direct"]>,
  machine: SandboxMachine,
  port: number,
): Promise<Duplex | undefined> {
  const known = refusedUntil.get(machine) ?? new Map<number, number>();
  if ((known.get(port) ?? 0) > performance.now()) return undefined;
  known.delete(port);
  const socket = await connect(machine, port).catch(() => undefined);
  if (socket) {
    socket.setNoDelay(true);
    return socket;
  }
  known.set(port, performance.now() + refusedMs);
  refusedUntil.set(machine, known);
  return undefined;
}

async function overAgent(id: string, agent: AgentClient, port: number): Promise<Duplex> {
  const stream = connectTcp(agent, port);
  try {
    await withDeadline(connected(stream), agent.deadlines.pingMs, () =>
      refused(id, port, "the guest did not answer in time"),
    );
    return stream;
  } catch (error) {
    stream.on("error", () => undefined).destroy();
    if (!(error instanceof AppError) || error.code !== "guest_refused") throw error;
    const isClosed = error.details["errno"] === "ECONNREFUSED";
    throw refused(id, port, isClosed ? "nothing listens on it" : error.message, error);
  }
}

function connected(stream: Duplex): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.once("connect", resolve);
    stream.once("error", reject);
    stream.once("close", () => reject(new AppError("port_failed", "The connection was closed")));
  });
}

function refused(id: string, port: number, why: string, cause?: unknown): AppError {
  return new AppError("port_refused", `Cannot connect to port ${port} of ${id}: ${why}`, {
    details: { id, port },
    remedy: advice("Start a server on that port in the sandbox, then try again."),
    cause,
  });
}
