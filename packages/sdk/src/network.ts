/** The network of a sandbox, and presets of rules. */
import type { NetworkInfo, NetworkLogEntry, NetworkMode, PresetInfo } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";

/** Reads and changes the network of one sandbox. Changes apply at once, also to open connections. */
export class SandboxNetwork {
  readonly #client: Client;
  readonly #id: string;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.#id = id;
  }

  /** Returns mode, rules, secrets and counters. */
  info(options: CallOptions = {}): Promise<NetworkInfo> {
    return this.#client.call("getNetwork", { id: this.#id }, options);
  }

  /** Allows destinations such as "api.example.com:443", "udp 192.0.2.1:123" or "preset:pypi". */
  allow(...destinations: string[]): Promise<NetworkInfo> {
    return this.#add("allow", destinations);
  }

  /** Denies destinations such as "*.example.com" or "10.0.0.0/8:22". */
  deny(...destinations: string[]): Promise<NetworkInfo> {
    return this.#add("deny", destinations);
  }

  /** Removes rules of the sandbox, written as `info()` lists them: "allow api.example.com:443". */
  remove(...rules: string[]): Promise<NetworkInfo> {
    return this.#client.call("setNetwork", { id: this.#id, remove: rules });
  }

  /** Changes what is given; the rest stays as it is. */
  set(
    changes: {
      /** none, filtered or open; default: as before. */
      mode?: NetworkMode | undefined;
      /** Replaces all rules of the sandbox and of its snapshot, with "allow" or "deny"; default: as before. */
      rules?: readonly string[] | undefined;
      /** Replaces the names of its secrets; default: as before. */
      secrets?: readonly string[] | undefined;
    },
    options: CallOptions = {},
  ): Promise<NetworkInfo> {
    const { mode, rules, secrets } = changes;
    const lists = { rules: rules && [...rules], secrets: secrets && [...secrets] };
    return this.#client.call("setNetwork", { id: this.#id, mode, ...lists }, options);
  }

  /** Reads the log of connections and look-ups, the oldest entry first. Guests choose the names in it. */
  async *log(
    options: CallOptions & {
      /** Waits for new entries at the end; default: false. */
      follow?: boolean | undefined;
      /** Starts with this many last entries, at most 1000; default: all that are kept. */
      tail?: number | undefined;
    } = {},
  ): AsyncGenerator<NetworkLogEntry> {
    const { follow, tail } = options;
    const request = { id: this.#id, follow: follow === true ? ("true" as const) : undefined, tail };
    yield* await this.#client.lines("networkLog", request, options);
  }

  #add(action: "allow" | "deny", destinations: readonly string[]): Promise<NetworkInfo> {
    const add = destinations.map((destination) => `${action} ${destination}`);
    return this.#client.call("setNetwork", { id: this.#id, add });
  }
}

/** What all sandboxes share of the network. */
export class Network {
  /** Lists and changes presets: named lists of rules. */
  readonly presets: Presets;

  constructor(client: Client) {
    this.presets = new Presets(client);
  }
}

/** Lists and changes presets. A rule "allow preset:NAME" stands for the rules of a preset. */
export class Presets {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the presets, bundled ones and your own. */
  list(options: CallOptions = {}): Promise<PresetInfo[]> {
    return this.#client.call("listPresets", {}, options);
  }

  /** Adds or changes a preset; its rules have "allow" or "deny". Sandboxes that use it follow at once. */
  set(name: string, rules: readonly string[], options: CallOptions = {}): Promise<PresetInfo> {
    return this.#client.call("setPreset", { name, rules: [...rules] }, options);
  }

  /** Removes a preset; a bundled one that was changed becomes what it was. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("removePreset", { name }, options);
  }
}
