/** What the parts that serve a connection may do on behalf of its machine. */
import type net from "node:net";
import type { ProxyChoice } from "@forkd/base";
import type { Decision, Destination, LogEntry, MachineSecret } from "../types.ts";
import type { Host } from "../policy/host.ts";
import type { Connection, Dial } from "./connection.ts";
import type { Direction, InterceptContext, Interceptor } from "./intercept.ts";

/** Where to connect: to a name, or to an address that a rule names. */
export type Target = {
  readonly port: number;
  readonly name?: string | undefined;
  readonly address?: string | undefined;
};

/** What must be allowed for a connection to the target. A name that the guest gave does not allow the address it dialled. */
export function grantsFor({ port, name, address }: Target): Destination[] {
  const whole = { protocol: "tcp", port, ...(name !== undefined && { name }) } as const;
  if (address === undefined) return [whole];
  const alone = { protocol: "tcp", port, address } as const;
  return name === undefined ? [alone] : [{ ...whole, address }, alone];
}

export type Refused = { readonly destination: Destination; readonly decision: Decision & { allowed: false } };

export interface MachineAccess {
  readonly secrets: readonly MachineSecret[];
  readonly interceptor: Interceptor;
  readonly proxies: ProxyChoice;
  /** Where a connection leads whose first bytes name `host`, if at all. */
  targetFor(dial: Dial, host: Host | undefined): { readonly target: Target } | { readonly refused: Refused };
  /** As InterceptContext.connect(). */
  connect(connection: Connection, target: Target): Promise<net.Socket>;
  charge(direction: Direction, bytes: number): Promise<void> | undefined;
  log(entry: Omit<LogEntry, "time">): void;
  deny(refused: Refused, extra?: Partial<LogEntry>): void;
  contextFor(connection: Connection): InterceptContext;
  /** Serves a connection from its first bytes on. */
  serve(connection: Connection, dial: Dial): void;
}

/** The text for a guest whose request is refused. */
export function refusalText({ destination, decision }: Refused): string {
  const { name, address, port } = destination;
  const host = name ?? (address?.includes(":") ? `[${address}]` : address) ?? "?";
  return `${host}:${port} is not allowed: ${decision.reason}. To allow it, add the rule "${decision.suggestion}"`;
}
