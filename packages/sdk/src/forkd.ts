/** The daemon as an object. */
import { AppError, isSandbox } from "@forkd/contract/wire";
import type {
  BuildEvent,
  CleanupReport,
  DoctorReport,
  RequestOf,
  ResponseOf,
  SandboxInfo,
  SnapshotDetail,
  SnapshotInfo,
  Status,
} from "@forkd/contract";
import { Client, type CallOptions, type JsonRoute } from "./client.ts";
import { ForkError } from "./errors.ts";
import { Sandbox } from "./sandbox.ts";
import type { Transport } from "./transport.ts";

export type ForkOptions = CallOptions & {
  env?: Record<string, string> | undefined;
  labels?: Record<string, string> | undefined;
  /** one entry per child, in order; at most n */
  vary?: RequestOf<"fork">["vary"];
  ttlSecs?: number | undefined;
};
export type Progress = Extract<BuildEvent, { type: "progress" }>;

export class Forkd {
  readonly snapshots: Snapshots;
  readonly sandboxes: Sandboxes;
  readonly #client: Client;

  constructor(options: { transport: Transport }) {
    this.#client = new Client(options.transport);
    this.snapshots = new Snapshots(this.#client);
    this.sandboxes = new Sandboxes(this.#client);
  }

  /** Any route that answers with one JSON value, by its name in the route table. */
  call<N extends JsonRoute>(name: N, input: RequestOf<N>, options: CallOptions = {}): Promise<ResponseOf<N>> {
    return this.#client.call(name, input, options);
  }

  /** One entry per child; one that could not be made is a ForkError. Rejects when none could. */
  async fork(
    tag: string,
    options: ForkOptions & { n?: number | undefined } = {},
  ): Promise<(Sandbox | ForkError)[]> {
    const { n, env, labels, vary, ttlSecs } = options;
    const request = { snapshot_tag: tag, n, env, labels, vary, ttl_secs: ttlSecs };
    const entries = await this.#client.call("fork", request, options);
    return entries.map((entry) =>
      isSandbox(entry) ? new Sandbox(this.#client, entry) : new ForkError(entry),
    );
  }

  async forkOne(tag: string, options: ForkOptions = {}): Promise<Sandbox> {
    const [child] = await this.fork(tag, { ...options, n: 1 });
    if (child instanceof Sandbox) return child;
    throw child ?? new AppError("internal", `The daemon answered a fork of "${tag}" with no child`);
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

export class Snapshots {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  list(options: CallOptions = {}): Promise<SnapshotInfo[]> {
    return this.#client.call("listSnapshots", {}, options);
  }

  /** `verify` reads every byte and compares checksums. */
  info(tag: string, options: CallOptions & { verify?: boolean | undefined } = {}): Promise<SnapshotDetail> {
    return this.#client.call("snapshotInfo", { tag, verify: flag(options.verify) }, options);
  }

  /** Builds a snapshot. Abort stops the build and removes what it made. */
  async build(
    request: RequestOf<"createSnapshot">,
    options: CallOptions & { onProgress?: ((progress: Progress) => void) | undefined } = {},
  ): Promise<SnapshotInfo> {
    for await (const event of await this.#client.lines("createSnapshot", request, options)) {
      if (event.type === "progress") options.onProgress?.(event);
      else if (event.type === "snapshot") return event.snapshot;
    }
    throw new AppError(
      "daemon_unreachable",
      `The daemon's answer ended before snapshot "${request.tag}" was made`,
    );
  }

  async remove(tag: string, options: CallOptions & { force?: boolean | undefined } = {}): Promise<void> {
    await this.#client.call("removeSnapshot", { tag, force: flag(options.force) }, options);
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

function flag(value: boolean | undefined): "true" | undefined {
  return value === true ? "true" : undefined;
}
