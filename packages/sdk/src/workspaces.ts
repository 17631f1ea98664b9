/** Workspaces: sandboxes with a name, which survive the daemon once they were suspended. */
import type { WorkspaceInfo } from "@forkd/contract";
import type { CallOptions, Client, ListFilter } from "./client.ts";
import type { ForkOptions } from "./fork.ts";
import { lifeFields } from "./sandbox-options.ts";
import { Sandbox } from "./sandbox.ts";

export class Workspaces {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** All that match, the oldest first; with `limit` that many at most. */
  list({ signal, ...filter }: CallOptions & ListFilter<"listWorkspaces"> = {}): Promise<WorkspaceInfo[]> {
    return this.#client.list("listWorkspaces", filter, { signal });
  }

  get(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.call("getWorkspace", { name }, options);
  }

  /** Forks a sandbox from the snapshot and gives it the name. */
  create(name: string, snapshotTag: string, options: Omit<ForkOptions, "vary"> = {}): Promise<WorkspaceInfo> {
    const { env, labels, ttlSecs } = options;
    const life = { ttl_secs: ttlSecs, ...lifeFields(options) };
    const request = { name, snapshot_tag: snapshotTag, env, labels, ...life };
    return this.#client.call("createWorkspace", request, options);
  }

  suspend(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.call("suspendWorkspace", { name }, options);
  }

  resume(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.call("resumeWorkspace", { name }, options);
  }

  /** Kills its sandbox and removes its saved state. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("deleteWorkspace", { name }, options);
  }

  /** Its sandbox, running or paused. */
  async sandbox(name: string, options: CallOptions = {}): Promise<Sandbox> {
    const { id } = await this.get(name, options);
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }
}
