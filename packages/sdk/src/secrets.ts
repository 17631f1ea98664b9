/** Secrets that the daemon fills in for guests, which see only placeholders. */
import type { CallOptions, Client } from "./client.ts";
import type { SecretInfo } from "./types.ts";

/** Input of `secrets.set()`. */
export type SecretOptions = CallOptions & {
  /** The secret itself. The daemon keeps it encrypted and never returns it. */
  value: string;
  /** Hosts that may receive the value, such as "api.example.com". */
  hosts: readonly string[];
  /** Header in which the placeholder is replaced; default: "Authorization". */
  header?: string | undefined;
  /** Value of the header that the gateway sends, with "{}" for the secret; default: "Bearer {}" or "{}". */
  format?: string | undefined;
};

/** Adds, lists and removes secrets. */
export class Secrets {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists secrets, without their values. */
  list(options: CallOptions = {}): Promise<SecretInfo[]> {
    return this.#client.invoke("listSecrets", {}, options);
  }

  /** Adds or replaces a secret. Sandboxes that have it use the new value at once. */
  set(name: string, options: SecretOptions): Promise<SecretInfo> {
    return this.#client.invoke("setSecret", { name }, options);
  }

  /** Removes a secret. Sandboxes that have it lose it at once. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("removeSecret", { name }, options);
  }
}
