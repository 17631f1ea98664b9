/** Keys for callers over HTTP. */
import type { NetworkMode, Scope } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import type { CreatedKey, KeyInfo } from "./types.ts";

/** Options of `keys.create()`. */
export type KeyOptions = CallOptions & {
  /** What the key may do; default: "run". */
  scope?: Scope | undefined;
  /** When the key expires; default: never. */
  expiresAt?: Date | undefined;
  /** Maximum number of sandboxes of this key; default: no limit. */
  maxSandboxes?: number | undefined;
  /** Maximum memory of all sandboxes of this key, in MiB; default: no limit. */
  maxMemoryMib?: number | undefined;
  /** Where sandboxes of this key may connect to at most, whatever they ask for; default: no limit. */
  network?:
    | {
        /** none, filtered or open; default: "filtered". */
        mode?: NetworkMode | undefined;
        /** Rules such as "allow api.example.com:443"; default: none. */
        rules?: readonly string[] | undefined;
      }
    | undefined;
  /** Names of the secrets that its sandboxes may have; default: all. */
  secrets?: readonly string[] | undefined;
};

/** Creates, lists and removes keys. */
export class Keys {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists keys, without their text. */
  list(options: CallOptions = {}): Promise<KeyInfo[]> {
    return this.#client.invoke("listKeys", {}, options);
  }

  /** Creates a key; only this answer has its text (`key`). */
  create(name: string, options: KeyOptions = {}): Promise<CreatedKey> {
    return this.#client.invoke("createKey", { name }, options);
  }

  /** Removes a key and closes the open requests of its callers. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("removeKey", { name }, options);
  }
}
