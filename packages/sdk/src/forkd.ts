/** The daemon as an object. */
import type {
  CleanupReport,
  DoctorReport,
  ForkdEvent,
  GcReport,
  RequestOf,
  ResponseOf,
  SandboxInfo,
  Stats,
  Status,
  Tree,
} from "@forkd/contract";
import { Client, type CallOptions, type CreateOptions, type JsonRoute, type ListFilter } from "./client.ts";
import type { ForkError } from "./errors.ts";
import { followEvents, type EventOptions } from "./events.ts";
import { fork, forkOne, type ForkOptions } from "./fork.ts";
import { Keys } from "./keys.ts";
import { Sandbox } from "./sandbox.ts";
import { Snapshots } from "./snapshots.ts";
import type { Transport } from "./transport.ts";
import { Workspaces } from "./workspaces.ts";

export class Forkd {
  readonly snapshots: Snapshots;
  readonly sandboxes: Sandboxes;
  readonly workspaces: Workspaces;
  readonly keys: Keys;
  readonly #client: Client;

  constructor(options: { transport: Transport }) {
    this.#client = new Client(options.transport);
    this.snapshots = new Snapshots(this.#client);
    this.sandboxes = new Sandboxes(this.#client);
    this.workspaces = new Workspaces(this.#client);
    this.keys = new Keys(this.#client);
  }

  /** Any route that answers with one JSON value, by its name in the route table. */
  call<N extends JsonRoute>(
    name: N,
    input: RequestOf<N>,
    options: CreateOptions = {},
  ): Promise<ResponseOf<N>> {
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

  /** What happens from now on (or after the event `after`), until the signal fires or the iteration ends. */
  events(options: EventOptions = {}): AsyncGenerator<ForkdEvent> {
    return followEvents(this.#client, options);
  }

  /** CPU, memory and disk of the sandboxes. */
  stats(filter: RequestOf<"stats"> = {}, options: CallOptions = {}): Promise<Stats> {
    return this.#client.call("stats", filter, options);
  }

  status(options: CallOptions = {}): Promise<Status> {
    return this.#client.call("status", {}, options);
  }

  /** With `boot` a small guest is started on each accelerator. */
  doctor(options: CallOptions & { boot?: boolean } = {}): Promise<DoctorReport> {
    const { boot, ...rest } = options;
    return this.#client.call("doctor", boot ? { boot: "true" } : {}, rest);
  }

  cleanup(options: CallOptions & { dryRun?: boolean | undefined } = {}): Promise<CleanupReport> {
    return this.#client.call("cleanup", { dry_run: options.dryRun }, options);
  }

  version(options: CallOptions = {}): Promise<ResponseOf<"version">> {
    return this.#client.call("version", {}, options);
  }

  /** Stops the daemon. `sandboxes`: keep running ones for the next daemon, or stop them; default: the daemon's setting. */
  shutdown({ sandboxes, ...options }: CallOptions & { sandboxes?: "keep" | "stop" } = {}): Promise<{
    stopped: number;
    kept: number;
  }> {
    return this.#client.call("shutdown", sandboxes === undefined ? {} : { sandboxes }, options);
  }
}

export class Sandboxes {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** All that match, the oldest first; with `limit` that many at most. */
  list(filter: ListFilter<"listSandboxes"> = {}, options: CallOptions = {}): Promise<SandboxInfo[]> {
    return this.#client.list("listSandboxes", filter, options);
  }

  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }

  async kill(id: string, options: CallOptions = {}): Promise<void> {
    await this.#client.call("kill", { id }, options);
  }
}
