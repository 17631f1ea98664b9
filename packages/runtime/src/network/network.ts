/**
 * Connects machines to the network through the egress proxy, a separate process. A machine has a slot from
 * the moment its VMM waits; the slot allows nothing until the sandbox's rules are applied.
 */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Socket } from "node:net";
import { nativeTool, proxiesOf, type Logger } from "@forkd/base";
import { AppError, errorMessage, type AskedLimits, type NetworkLogEntry } from "@forkd/contract";
import {
  EgressProxy,
  Gate,
  InstallationCa,
  SecretStore,
  buildBundle,
  type Counters,
  type EgressProxyOptions,
  type LogEntry,
  type MachineNetwork,
  type MachineSecret,
  type NetworkLimits,
} from "@forkd/egress";
import type { JailFacts, NetworkDevice, ProcessId } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import { PresetFile } from "./preset-file.ts";
import { noNetwork, policyOf, type NetworkDefaults, type SandboxNetwork } from "./sandbox-network.ts";

const noCounters: Counters = {
  bytesIn: 0,
  bytesOut: 0,
  connections: 0,
  openConnections: 0,
  denied: 0,
  failed: 0,
  queries: 0,
};
/** where every guest is, in its own namespace */
const guestAddress = "10.0.2.15";
/** QEMU's own stack sends what is for the gateway to the loopback of the namespace. */
const slirpResolvers = ["127.0.0.1"];
const slirpNote = "slower than a tap device, which this host does not allow";

type ConnectedMachine = { readonly process: ProcessId; readonly network: NetworkDevice };

type LogOptions = {
  tail?: number | undefined;
  follow?: boolean | undefined;
  signal?: AbortSignal | undefined;
};

/** The network of one machine. Disposing it closes its connections. */
export interface MachineSlot extends Disposable {
  readonly device: NetworkDevice;
  readonly note: string | undefined;
  /** whether its guest has a link */
  readonly isUp: boolean;
  /** Resolves when the rules apply: before that, the machine must not be handed out. */
  apply(network: SandboxNetwork, limits: AskedLimits | undefined): Promise<void>;
  /** For an adopted machine whose rules could not be applied: tries again until they are. */
  applyLater(network: SandboxNetwork, limits: AskedLimits | undefined): void;
  /** since it began, also over restarts of the proxy */
  counters(): Promise<Counters>;
  /** The last entries, and with `follow` those that come until the signal fires. */
  log(options: LogOptions): AsyncIterable<NetworkLogEntry>;
}

export class Network implements AsyncDisposable {
  readonly device: NetworkDevice;
  /** why machines have no network, or a slower one */
  readonly note: string | undefined;
  readonly defaults: NetworkDefaults;
  readonly presets: PresetFile;
  readonly #secrets: SecretStore | undefined;
  /** certificates that guests trust; undefined if they have no network */
  readonly caBundle: Buffer | undefined;
  readonly #proxy: EgressProxy | undefined;
  /** started again after it has exited */
  #gate: Promise<Gate> | undefined;
  readonly #log: Logger | undefined;
  readonly #slots = new Map<string, Slot>();
  /** called with each denial; `machine` is the id of its slot */
  onDenied: (machine: string, entry: NetworkLogEntry) => void = () => undefined;

  private constructor(parts: {
    device: NetworkDevice;
    note: string | undefined;
    defaults: NetworkDefaults;
    presets: PresetFile;
    secrets: SecretStore | undefined;
    caBundle?: Buffer;
    proxy?: EgressProxy;
    log?: Logger;
  }) {
    this.device = parts.device;
    this.note = parts.note;
    this.defaults = parts.defaults;
    this.presets = parts.presets;
    this.#secrets = parts.secrets;
    this.caBundle = parts.caBundle;
    this.#proxy = parts.proxy;
    this.#log = parts.log;
    this.#proxy?.onDenied((machine, entry) => this.onDenied(machine, toWire(entry)));
  }

  static async open(config: RuntimeConfig, jail: JailFacts, log: Logger): Promise<Network> {
    const dir = join(config.dataDir, "net");
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const presets = await PresetFile.open(join(config.dataDir, "presets.json"));
    const secrets = await SecretStore.open(config.dataDir);
    checkSettings(config, presets);
    const common = { defaults: config.network, presets, secrets };
    if (jail.netdev === "none")
      return new Network({
        ...common,
        device: "none",
        note: jail.missing.join("; ") || "this host has no jail",
      });
    const ca = await InstallationCa.open(dir);
    const caBundle = Buffer.from(await buildBundle(ca.certificatePem()));
    const proxy = await EgressProxy.start({
      log,
      namesFile: join(dir, "names.json"),
      interception: { caDirectory: dir },
      ...(config.networkResolver !== undefined && { resolver: config.networkResolver }),
      ...upstreamProxies(config.networkProxy),
      maxConnections: config.networkMaxConnections,
    });
    const note = jail.netdev === "slirp" ? slirpNote : undefined;
    return new Network({ ...common, device: jail.netdev, note, caBundle, proxy, log });
  }

  /** Of all machines since the daemon started. */
  get totals(): Counters {
    return this.#proxy?.totals ?? noCounters;
  }

  /** For a runtime whose machines are not connected. */
  static none(note: string): Network {
    return new Network({
      device: "none",
      note,
      defaults: { mode: "none", rules: [], deny: [] },
      presets: PresetFile.bundled(),
      secrets: undefined,
    });
  }

  /** The process id of the proxy, for status and tests. */
  get proxyPid(): number | undefined {
    return this.#proxy?.pid;
  }

  get secrets(): SecretStore {
    if (this.#secrets) return this.#secrets;
    throw new AppError("unsupported", `There are no secrets: ${this.note}`);
  }

  /** Begins to make the slot; nothing passes until rules are applied. */
  slot(id: string, machine: ConnectedMachine): MachineSlot {
    // An adopted machine may be in the namespace of the host, where the gate must not listen.
    const proxy = machine.network === "none" ? undefined : this.#proxy;
    const device = proxy ? machine.network : "none";
    const slot = new Slot(id, machine, proxy, {
      policy: (network) => policyOf(network, this.defaults, (rules) => this.presets.expand(rules)),
      secrets: (network) => this.#secretsOf(network),
      removed: () => void this.#slots.delete(id),
      device,
      note: this.#noteFor(device),
      log: this.#log,
    });
    this.#slots.set(id, slot);
    return slot;
  }

  #noteFor(device: NetworkDevice): string | undefined {
    if (device === "slirp") return slirpNote;
    if (device === "tap") return undefined;
    return this.device === "none" ? this.note : "an earlier daemon started this machine without a network";
  }

  /** Applies changed presets and secrets to all machines. */
  async refresh(): Promise<void> {
    await Promise.all([...this.#slots.values()].map((slot) => slot.refresh()));
  }

  /** A connection to a port of a guest with a tap, without its agent; undefined if the network is not used. */
  async connect(process: ProcessId, port: number, timeoutMs: number): Promise<Socket | undefined> {
    if (!this.#log) return undefined;
    const gate = (this.#gate ??= Gate.start(
      nativeTool("forkd-gate"),
      this.#log,
      () => (this.#gate = undefined),
    ));
    gate.catch(() => (this.#gate = undefined));
    return (await gate).connect(process, guestAddress, port, timeoutMs);
  }

  /** Refuses rules that cannot be used, before anything is made. */
  check(network: SandboxNetwork): void {
    const { rules, ceilings } = policyOf(network, this.defaults, (given) => this.presets.expand(given));
    const counts = [rules, ...ceilings.map((each) => each.rules)].map(({ length }) => length);
    if (Math.max(...counts) > maxExpandedRules)
      throw tooMany(`${Math.max(...counts)} rules with those of its presets`, `${maxExpandedRules} rules`);
    if (ceilings.length > maxCeilings)
      throw tooMany(`${ceilings.length} ceilings`, `${maxCeilings} ceilings`);
  }

  /** Refuses what this host cannot do, if it was asked for. */
  requireDevice(): void {
    if (this.device !== "none") return;
    throw new AppError("unsupported", `Cannot connect sandboxes to a network on this host: ${this.note}`, {
      remedy: { action: "run_doctor" },
    });
  }

  /** A secret that was removed and made again has another placeholder, which the sandbox was not given. */
  #secretsOf({ secrets }: SandboxNetwork): MachineSecret[] {
    // A removed secret stays in the sandbox's list of names; the proxy no longer fills it in.
    const names = Object.keys(secrets).filter((name) => this.#secrets?.info(name) !== undefined);
    const found = this.#secrets?.get(names) ?? [];
    return found.filter(({ name, placeholder }) => secrets[name] === placeholder);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#proxy?.[Symbol.asyncDispose]();
    const gate = await this.#gate?.catch(() => undefined);
    await gate?.[Symbol.asyncDispose]();
  }
}

/** Rules of the settings apply to every sandbox, so a mistake must not wait for the first one. */
function checkSettings({ network: { rules, deny } }: RuntimeConfig, presets: PresetFile): void {
  for (const [setting, given] of [
    ["network_rules", rules],
    ["network_deny", deny],
  ] as const) {
    try {
      presets.expand(given);
    } catch (error) {
      throw new AppError("host_not_ready", `Cannot use the setting ${setting}: ${errorMessage(error)}`, {
        remedy: { action: "change_setting", setting, to: "rules that can be read" },
        cause: error,
      });
    }
  }
}

function tooMany(has: string, most: string): AppError {
  return new AppError(
    "invalid_request",
    `Invalid request: network: it has ${has}, at most ${most} are allowed`,
  );
}

/** As the environment of the daemon names them, or one for everything. */
function upstreamProxies(setting: string): Pick<EgressProxyOptions, "upstreamProxies"> {
  if (setting === "off") return {};
  if (setting !== "auto") return { upstreamProxies: { http: setting, https: setting } };
  const found = proxiesOf(process.env);
  return found.http === undefined && found.https === undefined ? {} : { upstreamProxies: found };
}

type SlotSources = {
  policy: (network: SandboxNetwork) => ReturnType<typeof policyOf>;
  secrets: (network: SandboxNetwork) => MachineSecret[];
  removed: () => void;
  device: NetworkDevice;
  note: string | undefined;
  log: Logger | undefined;
};

/** What a machine may do before rules are applied. */
const nothing = { policy: { mode: "none", rules: [], ceilings: [] }, secrets: [], limits: {} } as const;
const retryMs = 5000;
/** As the proxy accepts them. */
const maxExpandedRules = 20_000;
const maxCeilings = 16;

class Slot implements MachineSlot {
  readonly #id: string;
  readonly #proxy: EgressProxy | undefined;
  readonly #sources: SlotSources;
  readonly #machine: Omit<MachineNetwork, "policy" | "secrets" | "limits">;
  /** undefined after it failed, so that it is tried again */
  #added: Promise<void> | undefined;
  #network = noNetwork;
  #limits: NetworkLimits = {};
  #isRemoved = false;

  constructor(
    id: string,
    { process, network }: ConnectedMachine,
    proxy: EgressProxy | undefined,
    sources: SlotSources,
  ) {
    this.#id = id;
    this.#proxy = proxy;
    this.#sources = sources;
    this.#machine = { id, ...process, resolvers: network === "slirp" ? slirpResolvers : undefined };
    // Reported by apply().
    this.#add().catch(() => undefined);
  }

  #add(): Promise<void> {
    const added = (this.#added ??= this.#proxy?.add({ ...this.#machine, ...nothing }) ?? Promise.resolve());
    added.catch(() => {
      if (this.#added === added) this.#added = undefined;
    });
    return added;
  }

  async apply(network: SandboxNetwork, limits: AskedLimits | undefined): Promise<void> {
    const before = [this.#network, this.#limits] as const;
    this.#network = network;
    this.#limits = { bps: limits?.net_bps, bytes: limits?.net_bytes, connections: limits?.net_connections };
    try {
      await this.#add();
      await this.#update();
    } catch (error) {
      [this.#network, this.#limits] = before;
      throw error;
    }
  }

  applyLater(network: SandboxNetwork, limits: AskedLimits | undefined): void {
    const again = () => {
      if (this.#isRemoved || this.#network !== noNetwork) return;
      this.apply(network, limits).catch(() => this.applyLater(network, limits));
    };
    // Nothing announces that what was in the way is gone, such as a socket of an earlier proxy.
    setTimeout(again, retryMs).unref();
  }

  /** After a change of presets or secrets. A machine to which it cannot be applied loses its network. */
  async refresh(): Promise<void> {
    if (this.#isRemoved || this.#network === noNetwork) return;
    try {
      await this.#update();
    } catch (error) {
      this.#sources.log?.error({ event: "network.refresh", machine: this.#id, error });
      await this.#proxy?.update(this.#id, nothing).catch(() => undefined);
    }
  }

  async #update(): Promise<void> {
    await this.#proxy?.update(this.#id, {
      policy: this.#sources.policy(this.#network),
      secrets: this.#sources.secrets(this.#network),
      limits: this.#limits,
    });
  }

  get device(): NetworkDevice {
    return this.#sources.device;
  }

  get note(): string | undefined {
    return this.#sources.note;
  }

  get isUp(): boolean {
    return this.#network.mode !== "none";
  }

  async counters(): Promise<Counters> {
    return (await this.#proxy?.counters(this.#id)) ?? noCounters;
  }

  async *log({ tail, follow = false, signal }: LogOptions): AsyncIterable<NetworkLogEntry> {
    if (!this.#proxy) return;
    const entries = this.#proxy.log(this.#id, { follow, tail, ...(signal && { signal }) });
    for await (const entry of entries) yield toWire(entry);
  }

  [Symbol.dispose](): void {
    if (this.#isRemoved) return;
    this.#isRemoved = true;
    this.#proxy?.remove(this.#id);
    this.#sources.removed();
  }
}

function toWire(entry: LogEntry): NetworkLogEntry {
  const { time, event, protocol, name, address, port, via, method, status, rule, reason, suggestion } = entry;
  return {
    at_unix: time / 1000,
    ...{ event, protocol, name, address, port, via, method, status, rule, reason, suggestion },
    bytes_received: entry.bytesIn,
    bytes_sent: entry.bytesOut,
    duration_ms: entry.durationMs,
    suppressed: entry.suppressed,
  };
}
