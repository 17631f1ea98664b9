/** Whose signatures the daemon asks for when it pulls a snapshot. */
import type { TrustPolicy } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import type { TrustEntry } from "./types.ts";

/** Pins keys of publishers and sets what happens to snapshots that none of them has signed. */
export class TrustList {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists keys and policies by repository. The first entry that fits a repository applies. */
  list(options: CallOptions = {}): Promise<TrustEntry[]> {
    return this.#client.invoke("listTrust", {}, options);
  }

  /** Pins a public key (PEM) for a repository, or with "/*" for all below it, in addition to pinned ones. */
  pin(repository: string, publicKey: string, options: CallOptions = {}): Promise<TrustEntry> {
    return this.#client.invoke("setTrust", { repository, public_key: publicKey }, options);
  }

  /** Removes a pinned key of a repository by its fingerprint. */
  async unpin(repository: string, fingerprint: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("removeTrust", { repository, fingerprint }, options);
  }

  /** Sets the policy of a repository; null: `require` with a pinned key and `warn` without one. */
  setPolicy(repository: string, policy: TrustPolicy | null, options: CallOptions = {}): Promise<TrustEntry> {
    return this.#client.invoke("setTrust", { repository, policy }, options);
  }

  /** Removes the policy and all pinned keys of a repository. */
  async remove(repository: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("removeTrust", { repository }, options);
  }
}
