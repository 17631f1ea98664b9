/**
 * Connections to ports of guests: how many there are, what ends them, and the timers of open ports. A machine
 * that ends takes its connections with it, so that the next machine of the sandbox gets new ones.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { longTimer } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { OpenPort } from "../sandbox/ports.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

/**
 * A socket that reaches the port without the agent. undefined or a rejection: the agent connects instead, such
 * as to a server that listens only on the guest's loopback address.
 */
type DirectConnect = (machine: SandboxMachine, port: number) => Promise<Socket | undefined>;
type Cut = () => void;
type Connections = Map<number, Set<Duplex>>;

export class GuestPorts implements Disposable {
  /** tried before the agent */
  direct: DirectConnect | undefined;
  /** called when the time of a port is over */
  onExpiry: (id: string, port: number) => void = () => undefined;
  readonly #maxConnections: number;
  readonly #machines = new WeakMap<SandboxMachine, Connections>();
  #open = 0;
  /** requests and connections that end when the port is closed, by sandbox and port */
  readonly #holders = new Map<string, Set<Cut>>();
  readonly #timers = new Map<string, Disposable>();

  constructor(maxConnections: number) {
    this.#maxConnections = maxConnections;
  }

  /** connections of all guests */
  get connections(): number {
    return this.#open;
  }

  count(machine: SandboxMachine | undefined, port: number): number {
    return (machine && this.#machines.get(machine)?.get(port)?.size) ?? 0;
  }

  /** Throws `capacity_exhausted` if the port has as many connections as it may have. */
  requireRoom(machine: SandboxMachine, port: number): void {
    const inUse = this.count(machine, port);
    if (inUse < this.#maxConnections) return;
    throw new AppError(
      "capacity_exhausted",
      `Cannot connect to port ${port}: it has ${inUse} connections, which is the limit`,
      {
        details: { port, in_use: inUse, limit: this.#maxConnections, retry_after_secs: 1 },
        remedy: { action: "retry_later", setting: "max_port_connections" },
      },
    );
  }

  /** Counts the connection until it is closed, and closes it when the machine ends. */
  add(machine: SandboxMachine, port: number, stream: Duplex): void {
    const streams = this.#streamsOf(machine, port);
    streams.add(stream);
    this.#open++;
    stream.once("close", () => {
      if (streams.delete(stream)) this.#open--;
    });
  }

  #streamsOf(machine: SandboxMachine, port: number): Set<Duplex> {
    const known = this.#machines.get(machine);
    const ports: Connections = known ?? new Map();
    if (!known) {
      this.#machines.set(machine, ports);
      const ended = () => {
        for (const streams of ports.values()) for (const stream of streams) stream.destroy();
      };
      void machine.ended.then(ended);
    }
    const streams = ports.get(port) ?? new Set();
    ports.set(port, streams);
    return streams;
  }

  /** Calls `cut` when the port is closed, until the returned function is called. */
  hold(id: string, port: number, cut: Cut): () => void {
    const key = keyOf(id, port);
    const cuts = this.#holders.get(key) ?? new Set();
    this.#holders.set(key, cuts);
    cuts.add(cut);
    return () => {
      cuts.delete(cut);
      if (cuts.size === 0 && this.#holders.get(key) === cuts) this.#holders.delete(key);
    };
  }

  /** Ends what hold() was called for. */
  cut(id: string, port: number): void {
    for (const cut of this.#holders.get(keyOf(id, port)) ?? []) cut();
  }

  /** Arms the timers of the ports of a sandbox as they are now. */
  schedule(sandbox: Sandbox): void {
    for (const each of sandbox.ports.all) this.#arm(sandbox.id, each);
  }

  /** Not with the sandbox itself: a timer may be due long after the sandbox was killed. */
  #arm(id: string, { port, expires_at_unix: at }: OpenPort): void {
    this.forget(id, port);
    if (at === undefined) return;
    const key = keyOf(id, port);
    const onDue = () => {
      this.#timers.delete(key);
      this.onExpiry(id, port);
    };
    this.#timers.set(key, longTimer(at * 1000 - Date.now(), onDue));
  }

  /** Stops the timer of a port. */
  forget(id: string, port: number): void {
    const key = keyOf(id, port);
    this.#timers.get(key)?.[Symbol.dispose]();
    this.#timers.delete(key);
  }

  [Symbol.dispose](): void {
    for (const timer of this.#timers.values()) timer[Symbol.dispose]();
    this.#timers.clear();
  }
}

function keyOf(id: string, port: number): string {
  return `${id} ${port}`;
}
