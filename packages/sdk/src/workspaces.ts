/** Workspaces: sandboxes that have a name. */
import type { WorkspaceInfo } from "@forkd/contract";
import type { CallOptions, Client, ListFilter } from "./client.ts";
import type { ForkOptions } from "./fork.ts";
import { lifeFields, networkFields } from "./sandbox-options.ts";
import { Sandbox } from "./sandbox.ts";

/** Creates, suspends and resumes workspaces. A suspended workspace survives a restart of the host. */
export class Workspaces {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the workspaces that match, the oldest first; default: all. */
  list({ signal, ...filter }: CallOptions & ListFilter<"listWorkspaces"> = {}): Promise<WorkspaceInfo[]> {
    return this.#client.list("listWorkspaces", filter, { signal });
  }

  /** Returns the workspace with this name. */
  get(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.call("getWorkspace", { name }, options);
  }

  /** Forks a sandbox from a snapshot and gives it this name. */
  create(name: string, snapshotTag: string, options: Omit<ForkOptions, "vary"> = {}): Promise<WorkspaceInfo> {
    const { env, labels, ttlSecs } = options;
    const life = { ttl_secs: ttlSecs, ...lifeFields(options) };
    const request = { name, snapshot_tag: snapshotTag, env, labels, ...life, ...networkFields(options) };
    return this.#client.call("createWorkspace", request, options);
  }

  /** Saves the sandbox of the workspace to disk and stops its machine. */
  suspend(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.call("suspendWorkspace", { name }, options);
  }

  /** Resumes the workspace, or starts it from its snapshot if its machine was lost. */
  resume(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.call("resumeWorkspace", { name }, options);
  }

  /** Kills the sandbox of the workspace and removes its saved state. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("deleteWorkspace", { name }, options);
  }

  /** Returns the sandbox of the workspace, running or paused. */
  async sandbox(name: string, options: CallOptions = {}): Promise<Sandbox> {
    const { id } = await this.get(name, options);
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }
}
