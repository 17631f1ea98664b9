/**
 * The daemon's side of the egress proxy. It knows every machine, so that a proxy that exits is started again with the same
 * machines; until then dials of guests fail. Totals of bytes survive that.
 */
import { mapPool, nativeTool, type Logger } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";
import { Policy } from "../policy/policy.ts";
import type { ProxyConfiguration } from "../proxy/messages.ts";
import type { Counters, LogEntry, MachineNetwork, NetworkChange } from "../types.ts";
import { Follower } from "./follower.ts";
import { ProxyExited, ProxyProcess, type Answer, type Request } from "./proxy-process.ts";

const backOff = { firstMs: 100, mostMs: 10_000, goodMs: 60_000 };
/** Machines that are added to a new process at a time */
const replayed = 16;

export type EgressProxyOptions = Omit<ProxyConfiguration, "gate"> & {
  /** path of forkd-gate; default: the one that was built here */
  readonly gate?: string | undefined;
  readonly log: Logger;
};

type Machine = {
  network: MachineNetwork;
  /** counted by processes that have exited */
  base: Counters;
  last: Counters;
  /** the process that runs could not add it */
  isMissing: boolean;
  readonly followers: Set<Follower>;
};

type Listener = (id: string, entry: LogEntry) => void;

const nothing: Counters = {
  bytesIn: 0,
  bytesOut: 0,
  connections: 0,
  openConnections: 0,
  denied: 0,
  failed: 0,
  queries: 0,
};

export class EgressProxy implements AsyncDisposable {
  readonly #options: EgressProxyOptions;
  readonly #machines = new Map<string, Machine>();
  /** counted by machines that were removed */
  #removed = nothing;
  readonly #onDenied = new Set<Listener>();
  readonly #onLog = new Set<Listener>();
  /** the process that is in use or starts; rejects if that cannot start */
  #current: Promise<ProxyProcess>;
  #pid: number | undefined;
  #startedMs = 0;
  #delayMs = backOff.firstMs;
  #retry: NodeJS.Timeout | undefined;
  #isStopping = false;

  private constructor(options: EgressProxyOptions) {
    this.#options = options;
    this.#current = this.#start();
    this.#current.catch(() => undefined);
  }

  /** Resolves when the proxy is ready. Throws AppError host_not_ready. Dispose it to stop the proxy. */
  static async start(options: EgressProxyOptions): Promise<EgressProxy> {
    const proxy = new EgressProxy(options);
    try {
      await proxy.#current;
      return proxy;
    } catch (error) {
      await proxy[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** undefined while it is started again */
  get pid(): number | undefined {
    return this.#pid;
  }

  /** Resolves when the guest can dial. Throws AppError: invalid_request, or engine_failed if there is no such process. */
  async add(network: MachineNetwork): Promise<void> {
    Policy.compile(network.policy);
    const machine: Machine = {
      network,
      base: nothing,
      last: nothing,
      isMissing: false,
      followers: new Set<Follower>(),
    };
    this.#forget(network.id);
    this.#machines.set(network.id, machine);
    try {
      await this.#apply(machine, () => addRequest(machine));
    } catch (error) {
      if (this.#machines.get(network.id) === machine) this.remove(network.id);
      throw error;
    }
  }

  /** Resolves when it holds for new and for open connections. Throws AppError; then nothing has changed. */
  async update(id: string, change: NetworkChange): Promise<void> {
    const machine = this.#get(id);
    if (change.policy) Policy.compile(change.policy);
    const { network } = machine;
    machine.network = {
      ...network,
      policy: change.policy ?? network.policy,
      secrets: change.secrets ?? network.secrets,
      limits: change.limits ?? network.limits,
    };
    const changed = machine.network;
    try {
      // A machine that is missing is added with the change.
      await this.#apply(machine, () =>
        machine.isMissing ? addRequest(machine) : { type: "update", id, change: mutable(change) },
      );
    } catch (error) {
      // Otherwise the next process would receive what this one refused.
      if (machine.network === changed) machine.network = network;
      throw error;
    }
  }

  /** Closes its connections. Does nothing for a machine that is not known. */
  remove(id: string): void {
    if (!this.#machines.has(id)) return;
    this.#forget(id);
    this.#current.then(
      (run) => run.send({ type: "remove", id }),
      () => undefined,
    );
  }

  /** The totals since add(), also while the proxy is started again. */
  async counters(id: string): Promise<Counters> {
    const machine = this.#get(id);
    try {
      const { counters } = await this.#ask({ type: "counters", id });
      if (counters) machine.last = counters;
    } catch (error) {
      if (!(error instanceof ProxyExited)) throw error;
    }
    return total(machine);
  }

  /** The last entries of a machine, oldest first; with `follow` also those that come, until it is removed or the signal fires. */
  async *log(
    id: string,
    {
      follow = false,
      tail,
      signal,
    }: { follow?: boolean; tail?: number | undefined; signal?: AbortSignal } = {},
  ): AsyncGenerator<LogEntry, undefined> {
    const { followers } = this.#get(id);
    const follower = new Follower();
    const stop = (): void => follower.end();
    if (follow) followers.add(follower);
    else stop();
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
    try {
      await this.#followAll();
      const { entries = [] } = await this.#ask({ type: "log", id });
      const latest = entries.at(-1)?.time ?? 0;
      yield* tail === undefined ? entries : entries.slice(-tail);
      // Entries of the last moment may be in both.
      for await (const entry of follower.entries()) if (entry.time > latest) yield entry;
    } finally {
      signal?.removeEventListener("abort", stop);
      followers.delete(follower);
      await this.#followAll().catch(() => undefined);
    }
  }

  /** Called for denials of all machines, at most some per second and machine. Returns what ends it. */
  onDenied(listener: Listener): () => void {
    this.#onDenied.add(listener);
    return () => this.#onDenied.delete(listener);
  }

  /** Called for all entries of all machines, with the same bounds. Returns what ends it. */
  onLog(listener: Listener): () => void {
    const changed = (): void => void this.#followAll().catch(() => undefined);
    this.#onLog.add(listener);
    changed();
    return () => {
      this.#onLog.delete(listener);
      changed();
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#retry);
    for (const id of this.#machines.keys()) this.#forget(id);
    const run = await this.#current.catch(() => undefined);
    await run?.[Symbol.asyncDispose]();
  }

  async #start(): Promise<ProxyProcess> {
    const { log, gate = nativeTool("forkd-gate"), ...rest } = this.#options;
    const run = await ProxyProcess.start({
      configuration: { ...rest, gate },
      log,
      onReport: (report) => {
        if (report.type === "entries") for (const { id, entry } of report.entries) this.#report(id, entry);
        else for (const { id, counters } of report.machines) this.#count(id, counters);
      },
      onExit: () => this.#onExit(),
    });
    this.#pid = run.pid;
    this.#startedMs = performance.now();
    return run;
  }

  #onExit(): void {
    this.#pid = undefined;
    if (this.#isStopping) return;
    if (performance.now() - this.#startedMs > backOff.goodMs) this.#delayMs = backOff.firstMs;
    const delayMs = this.#delayMs;
    this.#delayMs = Math.min(delayMs * 2, backOff.mostMs);
    this.#options.log.warn({ event: "egress.restart", delayMs, machines: this.#machines.size });
    for (const machine of this.#machines.values()) {
      machine.base = { ...total(machine), bytesIn: 0, bytesOut: 0, openConnections: 0 };
      machine.last = { ...nothing, bytesIn: machine.last.bytesIn, bytesOut: machine.last.bytesOut };
    }
    this.#current = new Promise<void>((resolve) => (this.#retry = setTimeout(resolve, delayMs))).then(() =>
      this.#restart(),
    );
    this.#current.catch(() => undefined);
  }

  async #restart(): Promise<ProxyProcess> {
    try {
      const run = await this.#start();
      if (this.#onLog.size > 0) run.send({ type: "follow", all: true });
      await mapPool([...this.#machines.values()], replayed, (machine) => this.#replay(run, machine));
      return run;
    } catch (error) {
      this.#options.log.error({ event: "egress.start_failed", reason: errorMessage(error) });
      if (!this.#isStopping) setImmediate(() => this.#onExit());
      throw new ProxyExited();
    }
  }

  async #replay(run: ProxyProcess, machine: Machine, delayMs = backOff.firstMs): Promise<void> {
    try {
      await run.ask(addRequest(machine));
      machine.isMissing = false;
    } catch (error) {
      // Its VMM may have exited, which the daemon notices too: it removes the machine then.
      machine.isMissing = true;
      const { id } = machine.network;
      this.#options.log.warn({ event: "egress.replay_failed", machine: id, reason: errorMessage(error) });
      const again = (): void => {
        const isWanted = !this.#isStopping && this.#machines.get(id) === machine && machine.isMissing;
        // Another process has its own replay.
        if (isWanted && this.#pid === run.pid)
          void this.#replay(run, machine, Math.min(delayMs * 2, backOff.mostMs));
      };
      setTimeout(again, delayMs).unref();
    }
  }

  async #ask(request: Request): Promise<Answer> {
    return (await this.#current).ask(request);
  }

  /** A new process gets the changed machine as a whole, so the change need not be sent again. */
  async #apply(machine: Machine, request: () => Request): Promise<void> {
    try {
      const run = await this.#current;
      await run.ask(request());
      machine.isMissing = false;
    } catch (error) {
      if (!(error instanceof ProxyExited) || this.#isStopping) throw error;
      await this.#current;
    }
  }

  async #followAll(): Promise<void> {
    const all =
      this.#onLog.size > 0 || [...this.#machines.values()].some(({ followers }) => followers.size > 0);
    (await this.#current).send({ type: "follow", all });
  }

  #report(id: string, entry: LogEntry): void {
    for (const listener of this.#onLog) listener(id, entry);
    if (entry.event === "denied") for (const listener of this.#onDenied) listener(id, entry);
    for (const follower of this.#machines.get(id)?.followers ?? []) follower.push(entry);
  }

  #count(id: string, counters: Counters): void {
    const machine = this.#machines.get(id);
    if (machine) machine.last = counters;
  }

  #get(id: string): Machine {
    const machine = this.#machines.get(id);
    if (!machine) throw new AppError("not_found", `The egress proxy has no machine "${id}"`);
    return machine;
  }

  /** Of all machines, also of those that were removed; as they were last reported, about once a second. */
  get totals(): Counters {
    return [...this.#machines.values()].map(total).reduce(sum, this.#removed);
  }

  #forget(id: string): void {
    const machine = this.#machines.get(id);
    if (!machine) return;
    for (const follower of machine.followers) follower.end();
    this.#removed = sum(this.#removed, { ...total(machine), openConnections: 0 });
    this.#machines.delete(id);
  }
}

/** With the bytes that were counted so far: a quota holds across processes. */
function addRequest({ network, last: { bytesIn, bytesOut } }: Machine): Request {
  return { type: "add", machine: mutable(network), used: { bytesIn, bytesOut } };
}

function sum(a: Counters, b: Counters): Counters {
  // Cast: the same keys with other numbers.
  const names = Object.keys(a) as (keyof Counters)[];
  return Object.fromEntries(names.map((name) => [name, a[name] + b[name]])) as Counters;
}

function total({ base, last }: Machine): Counters {
  const names = Object.keys(nothing) as (keyof Counters)[];
  return Object.fromEntries(names.map((name) => [name, base[name] + last[name]])) as Counters;
}

/** Messages have the types of their schemas, which are not read-only. */
function mutable<T>(value: T): Mutable<T> {
  return value as Mutable<T>;
}

type Mutable<T> = T extends readonly (infer U)[]
  ? Mutable<U>[]
  : T extends object
    ? { -readonly [K in keyof T]: Mutable<T[K]> }
    : T;
