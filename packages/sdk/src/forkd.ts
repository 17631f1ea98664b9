/** The daemon as an object. */
import type {
  CleanupReport,
  DoctorReport,
  GcReport,
  RequestOf,
  ResponseOf,
  SandboxInfo,
  Status,
  Tree,
} from "@forkd/contract";
import { Client, type CallOptions, type JsonRoute } from "./client.ts";
import type { ForkError } from "./errors.ts";
import { fork, forkOne, type ForkOptions } from "./fork.ts";
import { Sandbox } from "./sandbox.ts";
import { Snapshots } from "./snapshots.ts";
import type { Transport } from "./transport.ts";
import { Workspaces } from "./workspaces.ts";

export class Forkd {
  readonly snapshots: Snapshots;
  readonly sandboxes: Sandboxes;
  readonly workspaces: Workspaces;
  readonly #client: Client;

  constructor(options: { transport: Transport }) {
    this.#client = new Client(options.transport);
    this.snapshots = new Snapshots(this.#client);
    this.sandboxes = new Sandboxes(this.#client);
    this.workspaces = new Workspaces(this.#client);
  }

  /** Any route that answers with one JSON value, by its name in the route table. */
  call<N extends JsonRoute>(name: N, input: RequestOf<N>, options: CallOptions = {}): Promise<ResponseOf<N>> {
    return this.#client.call(name, input, options);
  }

  /** One entry per child; one that could not be made is a ForkError. Rejects when none could. */
  fork(
    tag: string,
    options: ForkOptions & { n?: number | undefined } = {},
  ): Promise<(Sandbox | ForkError)[]> {
    return fork(this.#client, tag, options);
  }

  forkOne(tag: string, options: ForkOptions = {}): Promise<Sandbox> {
    return forkOne(this.#client, tag, options);
  }

  /** Lineage of snapshots and sandboxes. */
  tree(options: CallOptions = {}): Promise<Tree> {
    return this.#client.call("tree", {}, options);
  }

  /** Removes what nothing refers to: flat images nobody maps, unfinished snapshots, strays; and branches, if asked to. */
  gc(
    options: CallOptions & {
      dryRun?: boolean | undefined;
      /** branches that nothing depends on; implied by the two below */
      branches?: boolean | undefined;
      olderThanSecs?: number | undefined;
      keepLast?: number | undefined;
    } = {},
  ): Promise<GcReport> {
    const { dryRun, branches, olderThanSecs, keepLast } = options;
    const request = { dry_run: dryRun, branches, older_than_secs: olderThanSecs, keep_last: keepLast };
    return this.#client.call("gc", request, options);
  }

  status(options: CallOptions = {}): Promise<Status> {
    return this.#client.call("status", {}, options);
  }

  doctor(options: CallOptions = {}): Promise<DoctorReport> {
    return this.#client.call("doctor", {}, options);
  }

  cleanup(options: CallOptions & { dryRun?: boolean | undefined } = {}): Promise<CleanupReport> {
    return this.#client.call("cleanup", { dry_run: options.dryRun }, options);
  }

  version(options: CallOptions = {}): Promise<ResponseOf<"version">> {
    return this.#client.call("version", {}, options);
  }

  /** Kills every sandbox and stops the daemon. */
  shutdown(options: CallOptions = {}): Promise<{ stopped: number }> {
    return this.#client.call("shutdown", {}, options);
  }
}

export class Sandboxes {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  list(filter: RequestOf<"listSandboxes"> = {}, options: CallOptions = {}): Promise<SandboxInfo[]> {
    return this.#client.call("listSandboxes", filter, options);
  }

  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }

  async kill(id: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("kill", { id }, options);
  }
}
