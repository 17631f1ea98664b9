/** Children that wait ready to be handed out. */
import type { CallOptions, Client } from "./client.ts";
import type { PoolInfo } from "./types.ts";

/** Shows and sets how many children wait ready, so that forks answer in milliseconds. */
export class ReadyPool {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Returns how many children of which snapshot are ready, and the memory that they use. */
  get(options: CallOptions = {}): Promise<PoolInfo> {
    return this.#client.invoke("getPool", {}, options);
  }

  /** Sets how many children of a snapshot wait ready; null: as many as demand and memory allow. */
  set(tag: string, ready: number | null, options: CallOptions = {}): Promise<PoolInfo> {
    return this.#client.invoke("setPool", { tag, ready }, options);
  }
}
