/** The client of a daemon. */
import type {
  CleanupReport,
  DoctorReport,
  ForkdEvent,
  GcReport,
  RequestOf,
  ResponseOf,
  SandboxInfo,
  ShutdownResult,
  Stats,
  Status,
  Tree,
} from "@forkd/contract";
import { Client, type CallOptions, type CreateOptions, type JsonRoute, type ListFilter } from "./client.ts";
import type { ForkError } from "./errors.ts";
import { followEvents, type EventOptions } from "./events.ts";
import { fork, forkOne, type ForkOptions } from "./fork.ts";
import { Keys } from "./keys.ts";
import { Network } from "./network.ts";
import { Sandbox } from "./sandbox.ts";
import { Secrets } from "./secrets.ts";
import { Snapshots } from "./snapshots.ts";
import type { Transport } from "./transport.ts";
import { Workspaces } from "./workspaces.ts";

/** A client of one daemon. Make one with `connect()` of `@forkd/sdk/node`, or with any transport. */
export class Forkd {
  /** Builds, lists and removes snapshots. */
  readonly snapshots: Snapshots;
  /** Lists, finds and kills sandboxes. */
  readonly sandboxes: Sandboxes;
  /** Creates, suspends and resumes workspaces: sandboxes that have a name. */
  readonly workspaces: Workspaces;
  /** Creates, lists and removes keys for callers over HTTP. */
  readonly keys: Keys;
  /** Adds, lists and removes secrets that guests use without seeing them. */
  readonly secrets: Secrets;
  /** Lists and changes presets of network rules. */
  readonly network: Network;
  readonly #client: Client;

  constructor(options: { transport: Transport }) {
    this.#client = new Client(options.transport);
    this.snapshots = new Snapshots(this.#client);
    this.sandboxes = new Sandboxes(this.#client);
    this.workspaces = new Workspaces(this.#client);
    this.keys = new Keys(this.#client);
    this.secrets = new Secrets(this.#client);
    this.network = new Network(this.#client);
  }

  /** Calls any route that answers with one JSON value, by its name in the route table. */
  call<N extends JsonRoute>(
    name: N,
    input: RequestOf<N>,
    options: CreateOptions = {},
  ): Promise<ResponseOf<N>> {
    return this.#client.call(name, input, options);
  }

  /** Forks `n` children (default: 1). A child that fails is a ForkError; the call rejects if all fail. */
  fork(
    tag: string,
    options: ForkOptions & { n?: number | undefined } = {},
  ): Promise<(Sandbox | ForkError)[]> {
    return fork(this.#client, tag, options);
  }

  /** Forks one child. */
  forkOne(tag: string, options: ForkOptions = {}): Promise<Sandbox> {
    return forkOne(this.#client, tag, options);
  }

  /** Returns the lineage of snapshots and sandboxes. */
  tree(options: CallOptions = {}): Promise<Tree> {
    return this.#client.call("tree", {}, options);
  }

  /** Removes unused flat images, unfinished snapshots and leftovers, and on request unused branches. */
  gc(
    options: CallOptions & {
      /** Only reports what it would remove; default: false. */
      dryRun?: boolean | undefined;
      /** Also removes branches that nothing depends on or runs from; default: false. */
      branches?: boolean | undefined;
      /** Also removes root file systems, kernels and initramfs that no snapshot and no build uses; default: false. */
      images?: boolean | undefined;
      /** Removes only branches that are older than this; implies `branches`; default: any age. */
      olderThanSecs?: number | undefined;
      /** Keeps this many of the newest branches; implies `branches`; default: 0. */
      keepLast?: number | undefined;
    } = {},
  ): Promise<GcReport> {
    const { dryRun, branches, images, olderThanSecs, keepLast } = options;
    const request = {
      dry_run: dryRun,
      branches,
      images,
      older_than_secs: olderThanSecs,
      keep_last: keepLast,
    };
    return this.#client.call("gc", request, options);
  }

  /** Follows events until the caller aborts or leaves the iteration. Reconnects after a lost connection. */
  events(options: EventOptions = {}): AsyncGenerator<ForkdEvent> {
    return followEvents(this.#client, options);
  }

  /** Measures CPU, memory and disk of the sandboxes. */
  stats(filter: RequestOf<"stats"> = {}, options: CallOptions = {}): Promise<Stats> {
    return this.#client.call("stats", filter, options);
  }

  /** Describes the running daemon. */
  status(options: CallOptions = {}): Promise<Status> {
    return this.#client.call("status", {}, options);
  }

  /** Checks the host; with `boot` (default: false) it also starts a small guest on each accelerator. */
  doctor(options: CallOptions & { boot?: boolean } = {}): Promise<DoctorReport> {
    const { boot, ...rest } = options;
    return this.#client.call("doctor", boot ? { boot: "true" } : {}, rest);
  }

  /** Removes leftovers of stopped daemons and sandboxes; with `dryRun` (default: false) only reports them. */
  cleanup(options: CallOptions & { dryRun?: boolean | undefined } = {}): Promise<CleanupReport> {
    return this.#client.call("cleanup", { dry_run: options.dryRun }, options);
  }

  /** Returns the version and the pid of the daemon. */
  version(options: CallOptions = {}): Promise<ResponseOf<"version">> {
    return this.#client.call("version", {}, options);
  }

  /**
   * Stops the daemon. `sandboxes`: keep running ones for the next daemon, or stop them; default: the daemon's
   * setting. Throws `workspace_not_saved` if a workspace cannot be saved; `force` stops it anyway.
   */
  shutdown({
    sandboxes,
    force,
    ...options
  }: CallOptions & {
    sandboxes?: "keep" | "stop" | undefined;
    force?: boolean | undefined;
  } = {}): Promise<ShutdownResult> {
    const request = { ...(sandboxes !== undefined && { sandboxes }), ...(force && { force }) };
    return this.#client.call("shutdown", request, options);
  }
}

/** Lists, finds and kills sandboxes. */
export class Sandboxes {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the sandboxes that match, the oldest first; default: all. */
  list(filter: ListFilter<"listSandboxes"> = {}, options: CallOptions = {}): Promise<SandboxInfo[]> {
    return this.#client.list("listSandboxes", filter, options);
  }

  /** Returns the sandbox with this id. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }

  /** Kills the sandbox with this id. */
  async kill(id: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("kill", { id }, options);
  }
}
