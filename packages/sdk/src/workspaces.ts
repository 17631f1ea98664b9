/** Workspaces: sandboxes that have a name. */
import type { CallOptions, Client } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { paginate, type Paginator } from "./paginator.ts";
import type { SandboxOptions } from "./sandbox-options.ts";
import { Sandbox } from "./sandbox.ts";
import type { WorkspaceInfo } from "./types.ts";

/** Which workspaces to list. */
export type WorkspaceFilter = {
  /** Only workspaces of the snapshot with this tag; default: all. */
  tag?: string | undefined;
  /** Only workspaces with all of these labels, `name` or `name=value`; default: all. */
  label?: string | readonly string[] | undefined;
  /** Only workspaces in this state; default: all. */
  state?: WorkspaceInfo["status"] | undefined;
  /** Only workspaces that the key with this name made; default: all. */
  owner?: string | undefined;
  /** Maximum number of entries; default: all. */
  limit?: number | undefined;
};

/** Creates, suspends and resumes workspaces. A suspended workspace survives a restart of the host. */
export class Workspaces {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the workspaces that match, the oldest first; default: all. */
  list(filter: WorkspaceFilter = {}, options: CallOptions = {}): Paginator<WorkspaceInfo> {
    return paginate(this.#client, "listWorkspaces", { filter, options }, fromWire);
  }

  /** Returns the workspace with this name. */
  get(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.invoke("getWorkspace", { name }, options);
  }

  /** Forks a sandbox from the snapshot with this tag and gives it this name. */
  create(name: string, tag: string, options: SandboxOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.invoke("createWorkspace", { name, snapshot_tag: tag }, options, ["idempotencyKey"]);
  }

  /** Saves the sandbox of the workspace to disk and stops its machine. */
  suspend(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.invoke("suspendWorkspace", { name }, options);
  }

  /** Resumes the workspace, or starts it from its snapshot if its machine was lost. */
  resume(name: string, options: CallOptions = {}): Promise<WorkspaceInfo> {
    return this.#client.invoke("resumeWorkspace", { name }, options);
  }

  /** Kills the sandbox of the workspace and removes its saved state. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("deleteWorkspace", { name }, options);
  }

  /** Returns the sandbox of the workspace, running or paused. */
  async sandbox(name: string, options: CallOptions = {}): Promise<Sandbox> {
    const { id } = await this.get(name, options);
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }
}
