import assert from "node:assert/strict";
import type dgram from "node:dgram";
import type net from "node:net";
import type { TestContext } from "node:test";
import { nativeTool, nullLogger } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { until } from "@forkd/test-support";
import { decode, encode } from "dns-packet";
import { Gate } from "../../src/gate/gate.ts";
import { noInterceptor, type Interceptor } from "../../src/proxy/intercept.ts";
import type { ProxyConfiguration } from "../../src/proxy/messages.ts";
import { Proxy } from "../../src/proxy/proxy.ts";
import type { LogEntry, MachineNetwork, NetworkMode, ProcessId } from "../../src/types.ts";
import { dnsUpstream, type DnsUpstream } from "./dns-upstream.ts";
import { namespace } from "./namespace.ts";
import { once, received } from "./sockets.ts";

/** What a guest can do: dial and ask its resolver. The sockets are made in its namespace. */
export class Guest implements AsyncDisposable {
  readonly process: ProcessId;
  readonly #gate: Gate;
  readonly #udp: dgram.Socket;
  #nextId = 1;

  private constructor(process: ProcessId, gate: Gate, udp: dgram.Socket) {
    this.process = process;
    this.#gate = gate;
    this.#udp = udp;
  }

  static async start(t: TestContext): Promise<Guest> {
    const process = await namespace(t);
    const gate = await Gate.start(nativeTool("forkd-gate"), nullLogger());
    const guest = new Guest(process, gate, await gate.datagram(process, "10.0.2.15", 40_000));
    t.after(() => guest[Symbol.asyncDispose]());
    return guest;
  }

  /** The address of a name, or the code of the error. */
  async resolve(name: string): Promise<string | number> {
    const id = this.#nextId++;
    const query = encode({ id, type: "query", flags: 0x100, questions: [{ type: "A", name }] });
    const ask = (): void => this.#udp.send(query, 53, "10.0.2.2", () => undefined);
    // As every resolver does: a datagram can be lost, for example while the proxy is started again.
    const retry = setInterval(ask, 1000);
    ask();
    try {
      for (;;) {
        const [bytes] = (await once(this.#udp, "message")) as [Buffer];
        const answer = decode(bytes);
        if (answer.id !== id) continue;
        const [record] = answer.answers ?? [];
        return record?.type === "A" ? record.data : (answer.flags ?? 0) & 0xf;
      }
    } finally {
      clearInterval(retry);
    }
  }

  /** A connection to an address, or to a name by the address that the resolver gives. */
  async dial(host: string, port: number): Promise<net.Socket> {
    const address = /^[0-9.]+$/.test(host) ? host : await this.resolve(host);
    if (typeof address === "number") throw new Error(`cannot resolve ${host}: ${address}`);
    const socket = await this.#gate.connect(this.process, address, port, 10_000);
    socket.on("error", () => undefined);
    return socket;
  }

  /** Dials and sends a byte. Resolves when the connection is reset or closed without an answer. */
  async refused(host: string, port: number): Promise<void> {
    const socket = await this.dial(host, port).catch((error: unknown) => {
      if (error instanceof AppError && error.details["code"] === "ECONNRESET") return undefined;
      throw error;
    });
    socket?.write("\x01");
    assert.equal(socket && (await received(socket)), socket && "");
  }

  datagram(port: number): Promise<dgram.Socket> {
    return this.#gate.datagram(this.process, "10.0.2.15", port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#udp.close();
    await this.#gate[Symbol.asyncDispose]();
  }
}

export type Fixture = {
  readonly guest: Guest;
  readonly proxy: Proxy;
  readonly dns: DnsUpstream;
  readonly log: LogEntry[];
  readonly rules: (rules: string[], mode?: NetworkMode) => Promise<void>;
  /** Waits for an entry of the log. */
  readonly logged: (matches: (entry: LogEntry) => boolean) => Promise<LogEntry>;
};

type FixtureOptions = {
  readonly records?: Record<string, string[]>;
  readonly rules?: string[];
  readonly mode?: NetworkMode;
  readonly limits?: MachineNetwork["limits"];
  readonly secrets?: MachineNetwork["secrets"];
  readonly interceptor?: Interceptor;
  readonly configuration?: Partial<ProxyConfiguration>;
};

export const machineId = "m1";

/** A proxy in this process, with one machine and a DNS server for itself. */
export async function fixture(t: TestContext, options: FixtureOptions = {}): Promise<Fixture> {
  const [guest, dns] = await Promise.all([Guest.start(t), dnsUpstream(t, options.records)]);
  const log: LogEntry[] = [];
  const proxy = await Proxy.start({
    configuration: { gate: nativeTool("forkd-gate"), resolver: dns.server, ...options.configuration },
    interceptor: options.interceptor ?? noInterceptor,
    log: nullLogger(),
    onLog: (_, entry) => log.push(entry),
    onGateExit: () => undefined,
  });
  t.after(() => proxy[Symbol.asyncDispose]());
  const { rules = [], mode = "filtered", limits = {}, secrets = [] } = options;
  const network = { id: machineId, ...guest.process, policy: { mode, rules, ceilings: [] }, secrets, limits };
  await proxy.add(network, { bytesIn: 0, bytesOut: 0 });
  const logged = async (matches: (entry: LogEntry) => boolean): Promise<LogEntry> => {
    await until("an entry of the log", () => log.some(matches));
    return log.find(matches) as LogEntry;
  };
  return {
    guest,
    proxy,
    dns,
    log,
    logged,
    rules: (next, nextMode = mode) =>
      proxy.update(machineId, { policy: { mode: nextMode, rules: next, ceilings: [] } }),
  };
}
