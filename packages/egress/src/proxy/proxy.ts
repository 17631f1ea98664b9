/** All machines of one proxy process. */
import { ProxyChoice, Scope, type Logger } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { NameTable } from "../dns/name-table.ts";
import { HostResolver } from "../dns/resolver.ts";
import { Gate } from "../gate/gate.ts";
import type { Counters, LogEntry, MachineNetwork, NetworkChange } from "../types.ts";
import { HttpFront } from "./http-front.ts";
import type { Interceptor } from "./intercept.ts";
import { MachineProxy, type Shared, type Used } from "./machine.ts";
import type { ProxyConfiguration } from "./messages.ts";

const defaults = { maxConnections: 16_384, idleMs: 60 * 60_000, listenPort: 61_000 };
/** the address that every guest has as its gateway, and the one that QEMU's user network turns it into */
const gateways = ["10.0.2.2", "127.0.0.1"];

type ProxyOptions = {
  readonly configuration: ProxyConfiguration;
  readonly interceptor: Interceptor;
  readonly log: Logger;
  readonly onLog: (id: string, entry: LogEntry) => void;
  /** the gate has exited: no machine can be added any more */
  readonly onGateExit: () => void;
};

export class Proxy implements AsyncDisposable {
  readonly #machines = new Map<string, Promise<MachineProxy>>();
  readonly #shared: Shared;
  readonly #scope: Scope;

  private constructor(shared: Shared, scope: Scope) {
    this.#shared = shared;
    this.#scope = scope;
  }

  static async start({ configuration, interceptor, log, onLog, onGateExit }: ProxyOptions): Promise<Proxy> {
    await using scope = new Scope();
    const {
      maxConnections = defaults.maxConnections,
      idleMs = defaults.idleMs,
      listenPort = defaults.listenPort,
    } = configuration;
    const gate = scope.use(await Gate.start(configuration.gate, log, onGateExit));
    const names = scope.use(await NameTable.open({ file: configuration.namesFile, log }));
    const http = new HttpFront(idleMs);
    scope.defer(() => http[Symbol.dispose]());
    let connections = 0;
    const shared: Shared = {
      gate,
      names,
      http,
      resolver: new HostResolver({ server: configuration.resolver }),
      proxies: new ProxyChoice(configuration.upstreamProxies),
      interceptor,
      listenPort,
      gateways,
      idleMs,
      reserveConnection: () => {
        if (connections >= maxConnections) return false;
        connections++;
        return true;
      },
      releaseConnection: () => connections--,
      onLog,
    };
    return new Proxy(shared, scope.keep());
  }

  /** Resolves when the machine's listeners exist. A machine that is known is replaced. */
  async add(network: MachineNetwork, used: Used): Promise<void> {
    const before = this.remove(network.id);
    const opening = (async () => {
      await before;
      return MachineProxy.open(network, this.#shared, used);
    })();
    this.#machines.set(network.id, opening);
    try {
      await opening;
    } catch (error) {
      if (this.#machines.get(network.id) === opening) this.#machines.delete(network.id);
      throw error;
    }
  }

  async update(id: string, change: NetworkChange): Promise<void> {
    (await this.#get(id)).update(change);
  }

  /** Does nothing for a machine that is not known. */
  async remove(id: string): Promise<void> {
    const opening = this.#machines.get(id);
    this.#machines.delete(id);
    const machine = await opening?.catch(() => undefined);
    await machine?.[Symbol.asyncDispose]();
  }

  async counters(id: string): Promise<Counters> {
    return (await this.#get(id)).counters;
  }

  async entries(id: string): Promise<LogEntry[]> {
    return (await this.#get(id)).entries();
  }

  async allCounters(): Promise<{ id: string; counters: Counters }[]> {
    const all = await Promise.all(
      [...this.#machines].map(async ([id, opening]) => {
        const machine = await opening.catch(() => undefined);
        return machine && { id, counters: machine.counters };
      }),
    );
    return all.filter((each) => each !== undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#machines.keys()].map((id) => this.remove(id)));
    await this.#scope[Symbol.asyncDispose]();
  }

  #get(id: string): Promise<MachineProxy> {
    const machine = this.#machines.get(id);
    if (!machine) throw new AppError("not_found", `The proxy has no machine "${id}"`);
    return machine;
  }
}
