/** Ports of a sandbox: open, list, close, and connections to them. */
import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { AppError, toAppError, type OpenedPort, type ParsedOf, type PortInfo } from "@forkd/contract";
import type { Context } from "../context.ts";
import { connectPort } from "../ports/connect-port.ts";
import { Traffic } from "../ports/traffic.ts";
import type { Runtime } from "../runtime.ts";
import { enterSandbox } from "../sandbox/into-guest.ts";
import { isOver, type OpenPort } from "../sandbox/ports.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

const maxPorts = 64;

/** How to reach a port is known to the daemon. */
type Unreached<T> = Omit<T, "url" | "path">;

/** A port that is open gets the new settings and keeps its token. */
export async function openPort(
  runtime: Runtime,
  { id, port, public: isPublic, ttl_secs: ttl }: ParsedOf<"openPort">,
): Promise<Unreached<OpenedPort>> {
  const sandbox = runtime.registry.get(id);
  const now = Date.now() / 1000;
  const before = sandbox.ports.find(port);
  const next: OpenPort = {
    port,
    public: isPublic,
    token: before?.token ?? randomBytes(32).toString("base64url"),
    opened_at_unix: before?.opened_at_unix ?? now,
    ...(ttl !== undefined && { expires_at_unix: now + ttl }),
  };
  await change(sandbox, (all) => {
    const others = all.filter((each) => each.port !== port && !isOver(each));
    if (others.length >= maxPorts) throw tooMany(id);
    return [...others, next].sort((a, b) => a.port - b.port);
  });
  runtime.ports.schedule(sandbox);
  if (before?.public && !isPublic) runtime.ports.cut(id, port);
  runtime.events.port("port.opened", sandbox.info(), port);
  const info = describe(runtime, sandbox, next);
  return isPublic ? info : { ...info, token: next.token };
}

export function listPorts(
  runtime: Pick<Runtime, "registry" | "ports">,
  { id }: ParsedOf<"listPorts">,
): Unreached<PortInfo>[] {
  const sandbox = runtime.registry.get(id);
  return sandbox.ports.all.filter((each) => !isOver(each)).map((each) => describe(runtime, sandbox, each));
}

export async function closePort(runtime: Runtime, { id, port }: ParsedOf<"closePort">): Promise<void> {
  const sandbox = runtime.registry.get(id);
  if (!sandbox.ports.find(port)) throw notOpen(id, port);
  await close(runtime, sandbox, port);
}

/** Closes a port whose time is over. Never rejects. */
export async function expirePort(runtime: Runtime, id: string, port: number): Promise<void> {
  const sandbox = runtime.registry.find(id);
  const found = sandbox?.ports.all.find((each) => each.port === port);
  if (!sandbox || !found || !isOver(found)) return;
  try {
    await close(runtime, sandbox, port, "its time is over");
  } catch (error) {
    // It takes no requests any more; the record loses it with its next change.
    runtime.log.warn({ event: "port.expired", sandbox: sandbox.id, port, error: toAppError(error) });
    runtime.ports.cut(sandbox.id, port);
  }
}

async function close(runtime: Runtime, sandbox: Sandbox, port: number, reason?: string): Promise<void> {
  await change(sandbox, (all) => all.filter((each) => each.port !== port));
  runtime.ports.forget(sandbox.id, port);
  runtime.ports.cut(sandbox.id, port);
  runtime.events.port("port.closed", sandbox.info(), port, reason);
}

function change(sandbox: Sandbox, edit: (all: readonly OpenPort[]) => readonly OpenPort[]): Promise<void> {
  // Not while a pause or a resume writes the record.
  return sandbox.exclusively(undefined, () => {
    sandbox.requireResumable();
    return sandbox.ports.change(edit, (ports) => sandbox.persist({ ports }));
  });
}

function describe(
  { ports }: Pick<Runtime, "ports">,
  sandbox: Sandbox,
  { port, public: isPublic, opened_at_unix, expires_at_unix }: OpenPort,
): Unreached<PortInfo> {
  return {
    port,
    public: isPublic,
    opened_at_unix,
    ...(expires_at_unix !== undefined && { expires_at_unix }),
    connections: ports.count(sandbox.machineAtWork, port),
  };
}

/** A port that is open, with its token. Throws `sandbox_not_found` or `port_not_open`. */
export function findPort(
  { registry }: Pick<Runtime, "registry">,
  { id, port }: { id: string; port: number },
): Readonly<Pick<OpenPort, "public" | "token">> {
  const found = registry.get(id).ports.find(port);
  if (!found) throw notOpen(id, port);
  return found;
}

export type EnteredPort = Disposable & {
  /** The same object for the same machine: connections of another one cannot be used. */
  readonly machine: object;
  /** Throws as connectPort() does. */
  readonly connect: () => Promise<Duplex>;
  /** Why the machine ended if it did, otherwise the error itself. */
  readonly explain: (error: unknown) => Promise<unknown>;
  /** For a connection that counts as activity only while bytes flow. Ends the call itself. */
  readonly byTraffic: () => Pick<Traffic, "touch"> & Disposable;
};

/** Begins a call to a port; resumes a sandbox that has auto-resume. Disposing the result ends the call. */
export async function enterPort(
  runtime: Runtime,
  { id, port, ...context }: Context & { id: string; port: number },
): Promise<EnteredPort> {
  const entered = await enterSandbox(runtime, { ...context, id });
  const { sandbox } = entered;
  const end = () => entered[Symbol.dispose]();
  try {
    return {
      machine: sandbox.current,
      connect: () => connectPort(runtime, sandbox, port),
      explain: entered.explain,
      byTraffic: () => {
        const traffic = new Traffic(runtime.activity, sandbox);
        traffic.touch();
        end();
        return traffic;
      },
      [Symbol.dispose]: end,
    };
  } catch (error) {
    end();
    throw error;
  }
}

function notOpen(id: string, port: number): AppError {
  return new AppError("port_not_open", `Port ${port} of ${id} is not open`, {
    details: { id, port },
    remedy: { action: "open_port", id, port: String(port) },
  });
}

function tooMany(id: string): AppError {
  return new AppError("capacity_exhausted", `Cannot open another port of ${id}: ${maxPorts} are open`, {
    details: { id, limit: maxPorts },
  });
}
