/** Secrets that the daemon fills in for guests, which see only placeholders. */
import type { SecretInfo } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";

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

  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists secrets, without their values. */
  list(options: CallOptions = {}): Promise<SecretInfo[]> {
    return this.#client.call("listSecrets", {}, options);
  }

  /** Adds or replaces a secret. Sandboxes that have it use the new value at once. */
  set(name: string, { value, hosts, header, format, ...options }: SecretOptions): Promise<SecretInfo> {
    const request = { name, value, hosts: [...hosts], header, format };
    return this.#client.call("setSecret", request, options);
  }

  /** Removes a secret. Sandboxes that have it lose it at once. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("removeSecret", { name }, options);
  }
}
