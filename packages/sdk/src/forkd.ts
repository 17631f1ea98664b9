/** The client of a daemon. */
import type { RequestOf, ResponseOf } from "@forkd/contract";
import { Client, type CallOptions, type CreateOptions, type JsonRoute } from "./client.ts";
import { refuseUnknown } from "./convert/request.ts";
import type { AnswerOf } from "./convert/types.ts";
import type { ForkError } from "./errors.ts";
import { followEvents, type EventOptions } from "./events.ts";
import { fork, forkOne } from "./fork.ts";
import { Hub } from "./hub.ts";
import { Keys } from "./keys.ts";
import { Network } from "./network.ts";
import type { ForkOptions, SandboxOptions } from "./sandbox-options.ts";
import type { Sandbox } from "./sandbox.ts";
import { Sandboxes } from "./sandboxes.ts";
import { ReadyPool } from "./pool.ts";
import { Secrets } from "./secrets.ts";
import { Snapshots } from "./snapshots.ts";
import { Stream } from "./stream.ts";
import type { Transport } from "./transport.ts";
import type {
  CleanupReport,
  Config,
  DoctorReport,
  ForkdEvent,
  GcReport,
  ShutdownResult,
  Stats,
  Status,
  Tree,
} from "./types.ts";
import { TrustList } from "./trust.ts";
import { Workspaces } from "./workspaces.ts";

/** A client of one daemon. Make one with `connect()` (in Node), or with any transport. */
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
  /** Shows and sets how many children wait ready to be handed out. */
  readonly pool: ReadyPool;
  /** Pins keys of publishers, whose signatures a pull asks for. */
  readonly trust: TrustList;
  /** Sends snapshots to registries and fetches them. */
  readonly hub: Hub;
  readonly #client: Client;

  /** Makes a client that sends its requests with this transport. */
  constructor(options: {
    /** Carries requests: `fetchTransport()`, or any other function. */
    transport: Transport;
  }) {
    this.#client = new Client(options.transport);
    this.snapshots = new Snapshots(this.#client);
    this.sandboxes = new Sandboxes(this.#client);
    this.workspaces = new Workspaces(this.#client);
    this.keys = new Keys(this.#client);
    this.secrets = new Secrets(this.#client);
    this.network = new Network(this.#client);
    this.hub = new Hub(this.#client);
    this.pool = new ReadyPool(this.#client);
    this.trust = new TrustList(this.#client);
  }

  /** Calls any route that answers with one JSON value, with names and units of the HTTP API in and out. */
  async call<N extends JsonRoute>(
    name: N,
    input: RequestOf<N>,
    options: CreateOptions = {},
  ): Promise<ResponseOf<N>> {
    refuseUnknown(name, options, ["idempotencyKey"]);
    return this.#client.call(name, input, options);
  }

  /** Forks one sandbox from the snapshot with this tag. */
  create(tag: string, options: SandboxOptions = {}): Promise<Sandbox> {
    return forkOne(this.#client, tag, options);
  }

  /** Forks `n` children (default: 1). A child that fails is a ForkError; the call rejects if all fail. */
  fork(tag: string, n = 1, options: ForkOptions = {}): Promise<(Sandbox | ForkError)[]> {
    return fork(this.#client, tag, n, options);
  }

  /** Returns the lineage of snapshots and sandboxes. */
  tree(options: CallOptions = {}): Promise<Tree> {
    return this.#client.invoke("tree", {}, options);
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
      /** Removes only branches that are older than this many ms; implies `branches`; default: any age. */
      olderThanMs?: number | undefined;
      /** Keeps this many of the newest branches; implies `branches`; default: 0. */
      keepLast?: number | undefined;
    } = {},
  ): Promise<GcReport> {
    return this.#client.invoke("gc", {}, options);
  }

  /** Follows events until the caller aborts or closes the stream. Reconnects after a lost connection. */
  events(options: EventOptions = {}): Stream<ForkdEvent> {
    return new Stream((signal) => followEvents(this.#client, { ...options, signal }), options.signal);
  }

  /** Measures CPU, memory and disk of the sandboxes. */
  stats(
    options: CallOptions & {
      /** Only children of the snapshot with this tag; default: all. */
      tag?: string | undefined;
      /** Only sandboxes with all of these labels, `name` or `name=value`; default: all. */
      label?: string | readonly string[] | undefined;
      /** Only sandboxes in this state; default: all. */
      state?: "running" | "paused" | "dead" | undefined;
    } = {},
  ): Promise<Stats> {
    return this.#client.invoke("stats", {}, options);
  }

  /** Describes the running daemon. */
  status(options: CallOptions = {}): Promise<Status> {
    return this.#client.invoke("status", {}, options);
  }

  /** Lists the settings that the daemon uses. */
  config(options: CallOptions = {}): Promise<Config> {
    return this.#client.invoke("config", {}, options);
  }

  /** Checks the host. */
  doctor(
    options: CallOptions & {
      /** Also starts a small guest on each accelerator; default: false. */
      boot?: boolean | undefined;
    } = {},
  ): Promise<DoctorReport> {
    return this.#client.invoke("doctor", {}, options);
  }

  /** Removes leftovers of stopped daemons and sandboxes. */
  cleanup(
    options: CallOptions & {
      /** Only reports what it would remove; default: false. */
      dryRun?: boolean | undefined;
    } = {},
  ): Promise<CleanupReport> {
    return this.#client.invoke("cleanup", {}, options);
  }

  /** Returns the version and the pid of the daemon. */
  version(options: CallOptions = {}): Promise<AnswerOf<"version">> {
    return this.#client.invoke("version", {}, options);
  }

  /** Stops the daemon. Rejects with `workspace_not_saved` if a workspace cannot be saved. */
  shutdown(
    options: CallOptions & {
      /** Keeps running sandboxes for the next daemon, or stops them; default: the daemon's setting. */
      sandboxes?: "keep" | "stop" | undefined;
      /** Stops workspaces that cannot be saved; default: false. */
      force?: boolean | undefined;
    } = {},
  ): Promise<ShutdownResult> {
    return this.#client.invoke("shutdown", {}, options);
  }
}
