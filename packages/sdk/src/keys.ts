/** Keys of the daemon: who may call it over TCP, and what for. */
import type { CreatedKey, KeyInfo, Scope } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";

export type KeyOptions = CallOptions & {
  /** default: run */
  scope?: Scope | undefined;
  /** default: never */
  expiresAt?: Date | undefined;
  /** what all sandboxes of this key together may be */
  maxSandboxes?: number | undefined;
  maxMemoryMib?: number | undefined;
};

export class Keys {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  list(options: CallOptions = {}): Promise<KeyInfo[]> {
    return this.#client.call("listKeys", {}, options);
  }

  /** `key` of the answer is told only here. */
  create(name: string, options: KeyOptions = {}): Promise<CreatedKey> {
    const { scope, expiresAt, maxSandboxes, maxMemoryMib } = options;
    const request = {
      name,
      scope,
      expires_at_unix: expiresAt && Math.floor(expiresAt.getTime() / 1000),
      max_sandboxes: maxSandboxes,
      max_memory_mib: maxMemoryMib,
    };
    return this.#client.call("createKey", request, options);
  }

  /** What callers with this key have open is cut off. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("removeKey", { name }, options);
  }
}
