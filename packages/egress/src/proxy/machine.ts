/** The network of one machine: its listeners, its policy, and the connections that are open. */
import type dgram from "node:dgram";
import type net from "node:net";
import { Scope, type ProxyChoice } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";
import { DnsServer } from "../dns/server.ts";
import type { NameTable } from "../dns/name-table.ts";
import type { HostResolver } from "../dns/resolver.ts";
import type { Gate } from "../gate/gate.ts";
import { canonicalAddress } from "../policy/address.ts";
import { isSynthetic } from "../policy/address-kind.ts";
import type { Host } from "../policy/host.ts";
import { Policy } from "../policy/policy.ts";
import type {
  Counters,
  Decision,
  Destination,
  LogEntry,
  MachineNetwork,
  MachineSecret,
  NetworkChange,
} from "../types.ts";
import type { MachineAccess, Refused, Target } from "./access.ts";
import { Connection, resetSocket, type Dial } from "./connection.ts";
import type { HttpFront } from "./http-front.ts";
import { gatewayHost, type Direction, type InterceptContext, type Interceptor } from "./intercept.ts";
import { MachineLog } from "./machine-log.ts";
import { Meter } from "./meter.ts";
import { forbidden, Outbound } from "./outbound.ts";
import { serveConnection } from "./serve.ts";
import { UdpSockets } from "./udp-sockets.ts";

const defaultConnections = 1024;
/** at the gateway's address: HTTP for the gateway of secrets, and the port that proxies usually have */
const proxyPorts = [80, 3128];
const resolverPort = 53;
/** idle time of a connection whose guest has ended its side */
const halfOpenMs = 300_000;

/** What all machines share. */
export type Shared = {
  readonly gate: Pick<Gate, "listen" | "datagram">;
  readonly names: NameTable;
  readonly resolver: HostResolver;
  readonly proxies: ProxyChoice;
  readonly interceptor: Interceptor;
  readonly http: HttpFront;
  /** the port to which the namespace sends every TCP connection */
  readonly listenPort: number;
  /** addresses that a guest has as its gateway */
  readonly gateways: readonly string[];
  readonly idleMs: number;
  /** false if this process has too many connections */
  reserveConnection(): boolean;
  releaseConnection(): void;
  onLog(id: string, entry: LogEntry): void;
};

export type Used = { readonly bytesIn: number; readonly bytesOut: number };

export class MachineProxy implements MachineAccess, AsyncDisposable {
  readonly #shared: Shared;
  readonly #log: MachineLog;
  readonly #meter: Meter;
  readonly #dns: DnsServer;
  readonly #udp: UdpSockets;
  readonly #outbound: Outbound;
  readonly #scope = new Scope();
  readonly #connections = new Set<Connection>();
  #network: MachineNetwork;
  #policy: Policy;
  #counts = { connections: 0, denied: 0, failed: 0, queries: 0 };

  private constructor(network: MachineNetwork, shared: Shared, used: Used) {
    this.#network = network;
    this.#shared = shared;
    this.#policy = Policy.compile(network.policy);
    this.#meter = new Meter(network.limits, { in: used.bytesIn, out: used.bytesOut });
    this.#log = new MachineLog((entry) => shared.onLog(network.id, entry));
    this.#outbound = new Outbound({
      resolve: (name) => shared.resolver.resolve(name, network.id),
      proxies: shared.proxies,
      policy: () => this.#policy,
      deny: (refused) => this.deny(refused),
      onFailure: () => this.#counts.failed++,
    });
    this.#dns = new DnsServer({
      permits: (name) => this.#permitsName(name),
      addressFor: (name) => this.#addressFor(name),
      onQuery: () => this.#counts.queries++,
    });
    this.#udp = new UdpSockets({
      datagram: (address, port) => shared.gate.datagram(this.#network, address, port),
      addressOf: (name) => shared.names.addressOf(name),
      resolve: (destination) => this.#outbound.udpAddress(destination),
      tryCharge: (direction, bytes) => this.#meter.tryCharge(direction, bytes),
      onFlow: (destination) => this.log({ event: "connected", ...destination }),
      onFailure: (destination, error) =>
        this.log({ event: "failed", ...destination, reason: errorMessage(error) }),
    });
  }

  /** Resolves when the machine has its listeners. Throws AppError. */
  static async open(network: MachineNetwork, shared: Shared, used: Used): Promise<MachineProxy> {
    const machine = new MachineProxy(network, shared, used);
    try {
      await machine.#listen();
      return machine;
    } catch (error) {
      await machine[Symbol.asyncDispose]();
      throw error;
    }
  }

  get network(): MachineNetwork {
    return this.#network;
  }

  get secrets(): readonly MachineSecret[] {
    return this.#network.secrets;
  }

  get interceptor(): Interceptor {
    return this.#shared.interceptor;
  }

  get proxies(): ProxyChoice {
    return this.#shared.proxies;
  }

  get counters(): Counters {
    const { in: bytesIn, out: bytesOut } = this.#meter.used;
    return { bytesIn, bytesOut, ...this.#counts, openConnections: this.#connections.size };
  }

  entries(): LogEntry[] {
    return this.#log.entries();
  }

  /** Applies to open connections, too: those that are no longer allowed are reset. Throws AppError and changes nothing. */
  update({ policy: text, secrets, limits }: NetworkChange): void {
    const before = this.#network;
    const network = {
      ...before,
      policy: text ?? before.policy,
      secrets: secrets ?? before.secrets,
      limits: limits ?? before.limits,
    };
    const policy = Policy.compile(network.policy);
    this.#network = network;
    this.#policy = policy;
    this.#meter.setLimits(network.limits);
    for (const connection of this.#connections)
      for (const grant of connection.grants) {
        const decision = policy.decide(grant);
        if (decision.allowed) continue;
        this.deny({ destination: grant, decision });
        connection.cut();
        break;
      }
    this.#udp.apply(policy);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) connection.cut();
    this.#meter.release();
    this.#udp.close();
    await this.#scope[Symbol.asyncDispose]();
  }

  async #listen(): Promise<void> {
    const { gate, listenPort, gateways } = this.#shared;
    const [server] = await gate.listen(this.#network, [listenPort]);
    if (!server) throw new AppError("engine_failed", "The gate made no listener");
    this.#scope.defer(() => closeServer(server));
    server.on("connection", (socket) => this.accept(socket));
    server.on("error", (error) =>
      this.log({ event: "failed", protocol: "tcp", reason: errorMessage(error) }),
    );
    for (const address of this.#network.resolvers ?? gateways.slice(0, 1)) {
      const socket = await gate.datagram(this.#network, address, resolverPort);
      this.#scope.defer(() => closeDatagram(socket));
      socket.on("error", () => undefined);
      this.#dns.serveDatagrams(socket);
    }
    this.#udp.apply(this.#policy);
  }

  /** A connection of the guest. Its local address is the one that the guest dialled. */
  accept(guest: net.Socket): void {
    guest.on("error", () => guest.destroy());
    this.#counts.connections++;
    const address = canonicalAddress(guest.localAddress ?? "");
    const port = guest.localPort;
    if (address === undefined || port === undefined) {
      guest.destroy(); // closed already
      return;
    }
    const problem = this.#reserve();
    if (problem !== undefined) {
      this.log({ event: "denied", protocol: "tcp", address, port, reason: problem });
      resetSocket(guest);
      return;
    }
    const connection = new Connection(guest);
    this.#connections.add(connection);
    guest.once("close", () => {
      this.#connections.delete(connection);
      this.#shared.releaseConnection();
    });
    guest.setNoDelay(true);
    guest.setTimeout(this.#shared.idleMs, () => guest.destroy());
    // Most likely the guest's program has closed the connection, which shows only when something is sent.
    guest.once("end", () => guest.setTimeout(Math.min(this.#shared.idleMs, halfOpenMs)));
    this.#dial(connection, address, port);
  }

  /** Counts the connection, or says why there can be no more. */
  #reserve(): string | undefined {
    if (this.#connections.size >= (this.#network.limits.connections ?? defaultConnections))
      return "the sandbox has too many open connections";
    if (this.#meter.isUsedUp) return "the sandbox has used up its bytes";
    return this.#shared.reserveConnection() ? undefined : "the host has too many open connections";
  }

  #dial(connection: Connection, address: string, port: number): void {
    if (this.#shared.gateways.includes(address)) {
      if (port === resolverPort) this.#dns.serveConnection(connection.guest, Buffer.alloc(0));
      else if (proxyPorts.includes(port)) this.serve(connection, { port, isProxy: true });
      else
        this.#refuseDial(
          connection,
          { protocol: "tcp", address, port },
          "there is no such service at the gateway",
        );
      return;
    }
    if (isSynthetic(address)) {
      const name = this.#shared.names.nameOf(address);
      const destination = {
        protocol: "tcp",
        port,
        ...(name === undefined ? { address } : { name }),
      } as const;
      const decision = this.#policy.decide(destination);
      if (!decision.allowed) this.#refuseDial(connection, destination, decision);
      else {
        connection.grants.add(destination);
        this.serve(connection, { port, name });
      }
      return;
    }
    const destination = { protocol: "tcp", port, address } as const;
    const decision = this.#policy.decide(destination);
    // A name that follows in the first bytes may be allowed.
    if (!decision.allowed && !this.#policy.mayAllowName(port))
      this.#refuseDial(connection, destination, decision);
    else this.serve(connection, { port, address });
  }

  #refuseDial(
    connection: Connection,
    destination: Destination,
    why: string | (Decision & { allowed: false }),
  ): void {
    if (typeof why === "string") this.log({ event: "denied", ...destination, reason: why });
    else this.deny({ destination, decision: why });
    connection.cut();
  }

  serve(connection: Connection, dial: Dial): void {
    void serveConnection(connection, dial, this, this.#shared.http);
  }

  targetFor(dial: Dial, host: Host | undefined): { target: Target } | { refused: Refused } {
    const { port } = dial;
    const check = (destination: Destination, target: Target): { target: Target } | { refused: Refused } => {
      const decision = this.#policy.decide(destination);
      return decision.allowed ? { target } : { refused: { destination, decision } };
    };
    if (host === undefined) {
      const target = { port, ...(dial.name === undefined ? { address: dial.address } : { name: dial.name }) };
      return check({ protocol: "tcp", ...target }, target);
    }
    if ("address" in host) return check({ protocol: "tcp", port, ...host }, { port, ...host });
    // A rule that names the dialled address permits it with any name, unless a rule before it denies the name. The guest
    // chooses the name, so every level must allow the address without it.
    if (dial.address !== undefined) {
      const both = this.#policy.decide({ protocol: "tcp", port, name: host.name, address: dial.address });
      const alone = this.#policy.decide({ protocol: "tcp", port, address: dial.address });
      if (both.allowed && both.by === "address" && alone.allowed)
        return { target: { port, name: host.name, address: dial.address } };
    }
    return check({ protocol: "tcp", port, name: host.name }, { port, name: host.name });
  }

  connect(connection: Connection, target: Target): Promise<net.Socket> {
    return this.#outbound.connect(connection, target);
  }

  charge(direction: Direction, bytes: number): Promise<void> | undefined {
    return this.#meter.charge(direction, bytes);
  }

  log(entry: Omit<LogEntry, "time">): void {
    if (entry.event === "denied") this.#counts.denied++;
    this.#log.add(entry);
  }

  deny({ destination, decision }: Refused, extra: Partial<LogEntry> = {}): void {
    const { reason, rule, suggestion } = decision;
    this.log({ event: "denied", ...destination, ...extra, reason, rule, suggestion });
  }

  contextFor(connection: Connection): InterceptContext {
    const current = (): readonly MachineSecret[] => this.secrets;
    return {
      machine: this.#network.id,
      get secrets() {
        return current();
      },
      decide: (name, port) => this.#policy.decide({ protocol: "tcp", port, name }),
      connect: (name, port) => {
        const checked = this.targetFor({ port }, { name });
        if ("target" in checked) return this.connect(connection, checked.target);
        this.deny(checked.refused);
        return Promise.reject(forbidden(checked.refused));
      },
      charge: (direction, bytes) => this.charge(direction, bytes),
      log: (entry) => this.log(entry),
    };
  }

  #permitsName(name: string): boolean {
    if (name === gatewayHost && this.secrets.length > 0) return true;
    if (this.#policy.permitsName(name)) return true;
    this.log({
      event: "denied",
      protocol: "dns",
      name,
      reason: this.#policy.mode === "none" ? "the network is off" : "no rule allows this name",
      suggestion: `allow ${name}`,
    });
    return false;
  }

  async #addressFor(name: string): Promise<string> {
    const { names, resolver, proxies, gateways } = this.#shared;
    if (name === gatewayHost && this.secrets.length > 0) return gateways[0] ?? "";
    // Behind a proxy the host need not be able to resolve names.
    if (!proxies.proxyFor(name, 443, "https")) await resolver.resolve(name, this.#network.id);
    const address = names.addressOf(name);
    await this.#udp.openFor(name, this.#policy);
    return address;
  }
}

/** Does not wait for connections: they are closed one by one. */
function closeServer(server: net.Server): void {
  server.close(() => undefined);
}

function closeDatagram(socket: dgram.Socket): void {
  socket.close();
}
