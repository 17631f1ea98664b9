/** The network of a sandbox, and presets of rules. */
import type { NetworkMode, RequestOf } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { filterOf, refuseUnknown, requestOf } from "./convert/request.ts";
import { Stream } from "./stream.ts";
import type { NetworkInfo, NetworkLogEntry, PresetInfo } from "./types.ts";

/** Changes of `network.set()`. */
export type NetworkChanges = {
  /** none, filtered or open; default: as before. */
  mode?: NetworkMode | undefined;
  /** Replaces all rules of the sandbox and of its snapshot, with "allow" or "deny"; default: as before. */
  rules?: readonly string[] | undefined;
  /** Replaces the names of its secrets; default: as before. */
  secrets?: readonly string[] | undefined;
};

/** Options of `network.log()`. */
export type NetworkLogOptions = CallOptions & {
  /** Waits for new entries at the end; default: false. */
  follow?: boolean | undefined;
  /** Starts with this many last entries, at most 1000; default: all that are kept. */
  tail?: number | undefined;
};

/** Reads and changes the network of one sandbox. Changes apply at once, also to open connections. */
export class SandboxNetwork {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, id: string) {
    this.#client = client;
    this.#id = id;
  }

  /** Returns mode, rules, secrets and counters. */
  info(options: CallOptions = {}): Promise<NetworkInfo> {
    return this.#client.invoke("getNetwork", { id: this.#id }, options);
  }

  /** Allows destinations such as "api.example.com:443", "udp 192.0.2.1:123" or "preset:pypi". */
  allow(destinations: string | readonly string[], options: CallOptions = {}): Promise<NetworkInfo> {
    return this.#change({ add: rules("allow", destinations) }, options);
  }

  /** Denies destinations such as "*.example.com" or "10.0.0.0/8:22". */
  deny(destinations: string | readonly string[], options: CallOptions = {}): Promise<NetworkInfo> {
    return this.#change({ add: rules("deny", destinations) }, options);
  }

  /** Removes rules of the sandbox, written as `info()` lists them: "allow api.example.com:443". */
  remove(given: string | readonly string[], options: CallOptions = {}): Promise<NetworkInfo> {
    return this.#change({ remove: [given].flat() }, options);
  }

  /** Changes what is given; the rest stays as it is. */
  async set(changes: NetworkChanges, options: CallOptions = {}): Promise<NetworkInfo> {
    return this.#change(
      filterOf("setNetwork", { add: undefined, remove: undefined, id: this.#id }, changes),
      options,
    );
  }

  /** Reads the log of connections and look-ups, the oldest entry first. Guests choose the names in it. */
  log(options: NetworkLogOptions = {}): Stream<NetworkLogEntry> {
    return new Stream((signal) => this.#entries({ ...options, signal }), options.signal);
  }

  async *#entries(options: NetworkLogOptions): AsyncGenerator<NetworkLogEntry> {
    const request = requestOf("networkLog", { id: this.#id }, options);
    for await (const entry of await this.#client.lines("networkLog", request, options)) yield fromWire(entry);
  }

  async #change(change: Partial<RequestOf<"setNetwork">>, options: CallOptions): Promise<NetworkInfo> {
    refuseUnknown("setNetwork", options, []);
    return fromWire(await this.#client.call("setNetwork", { ...change, id: this.#id }, options));
  }
}

function rules(action: "allow" | "deny", destinations: string | readonly string[]): string[] {
  return [destinations].flat().map((destination) => `${action} ${destination}`);
}

/** What all sandboxes share of the network. */
export class Network {
  /** Lists and changes presets: named lists of rules. */
  readonly presets: Presets;

  /** @internal */
  constructor(client: Client) {
    this.presets = new Presets(client);
  }
}

/** Lists and changes presets. A rule "allow preset:NAME" stands for the rules of a preset. */
export class Presets {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the presets, bundled ones and your own. */
  list(options: CallOptions = {}): Promise<PresetInfo[]> {
    return this.#client.invoke("listPresets", {}, options);
  }

  /** Adds or changes a preset; its rules have "allow" or "deny". Sandboxes that use it follow at once. */
  set(name: string, rules: readonly string[], options: CallOptions = {}): Promise<PresetInfo> {
    return this.#client.invoke("setPreset", { name, rules: [...rules] }, options);
  }

  /** Removes a preset; a bundled one that was changed becomes what it was. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("removePreset", { name }, options);
  }
}
