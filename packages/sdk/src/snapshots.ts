/** The snapshots of the daemon. */
import { AppError } from "@forkd/contract/wire";
import type { BuildEvent, RemovedSnapshots, RequestOf, SnapshotDetail, SnapshotInfo } from "@forkd/contract";
import type { CallOptions, Client, ListFilter } from "./client.ts";
import type { Branch } from "./sandbox.ts";
import { deriveSnapshot, type DeriveRequest } from "./derive.ts";

/** Progress within a step of a build. */
export type Progress = Extract<BuildEvent, { type: "progress" }>;
/** A step of a build that has ended, and its time. */
export type BuildStep = Extract<BuildEvent, { type: "step" }>;

/** Builds, lists and removes snapshots. */
export class Snapshots {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the snapshots that match, ordered by tag; default: all. */
  list({ signal, ...filter }: CallOptions & ListFilter<"listSnapshots"> = {}): Promise<SnapshotInfo[]> {
    return this.#client.list("listSnapshots", filter, { signal });
  }

  /** Describes a snapshot, and with `verify` (default: false) compares the digests of its files. */
  info(tag: string, options: CallOptions & { verify?: boolean | undefined } = {}): Promise<SnapshotDetail> {
    return this.#client.call("snapshotInfo", { tag, verify: flag(options.verify) }, options);
  }

  /** Builds a snapshot. Abort stops the build and removes its files. */
  async build(
    request: RequestOf<"createSnapshot">,
    options: CallOptions & {
      /** Receives the progress within steps; default: it is not reported. */
      onProgress?: ((progress: Progress) => void) | undefined;
      /** Receives each step when it has ended, with its time; default: steps are not reported. */
      onStep?: ((step: BuildStep) => void) | undefined;
    } = {},
  ): Promise<SnapshotInfo> {
    for await (const event of await this.#client.lines("createSnapshot", request, options)) {
      if (event.type === "progress") options.onProgress?.(event);
      else if (event.type === "step") options.onStep?.(event);
      else if (event.type === "snapshot") return event.snapshot;
    }
    throw new AppError(
      "daemon_unreachable",
      `The daemon's answer ended before snapshot "${request.tag}" was made`,
    );
  }

  /** Waits until a branch made with `wait: false` is on disk; rejects with `snapshot_failed` if it fails. */
  async ready(tag: string, options: CallOptions = {}): Promise<SnapshotInfo> {
    const early = await this.#settled(tag, options);
    if (early) return early;
    // Opens the stream before it reads the list again, so that it misses no change.
    for (;;) {
      const events = await this.#client.events({ type: "snapshot.*", tag }, options);
      try {
        do {
          const found = await this.#settled(tag, options);
          if (found) return found;
        } while (!(await events.next()).done);
      } finally {
        await events.return(undefined);
      }
    }
  }

  /** Returns the snapshot once it is ready; undefined while it is being written. */
  async #settled(tag: string, options: CallOptions): Promise<SnapshotInfo | undefined> {
    const [snapshot] = (await this.list({ tag, signal: options.signal })).filter(
      (candidate) => candidate.tag === tag,
    );
    if (snapshot === undefined)
      throw new AppError("snapshot_not_found", `No snapshot has the tag "${tag}"`, { details: { tag } });
    if (snapshot.status === "ready") return snapshot;
    if (snapshot.status === "writing") return undefined;
    throw new AppError(
      "snapshot_failed",
      `Snapshot "${tag}" could not be written: ${snapshot.warning ?? "the daemon does not say why"}`,
      { details: { tag } },
    );
  }

  /** Copies a snapshot into a new one (`to`) without a parent. */
  compact(tag: string, to: string, options: CallOptions = {}): Promise<SnapshotInfo> {
    return this.#client.call("compact", { tag, to }, options);
  }

  /**
   * Forks `from`, runs a command in the child, branches the child as `tag` and kills it. If the command
   * fails, the call rejects with CommandError and makes no snapshot.
   */
  derive(request: DeriveRequest): Promise<Branch> {
    return deriveSnapshot(this.#client, request);
  }

  /** @deprecated Use `derive()`. */
  diff(request: DeriveRequest): Promise<Branch> {
    return this.derive(request);
  }

  /** Removes a snapshot that nothing depends on. Resolves to everything that was removed. */
  async remove(
    tag: string,
    options: CallOptions & {
      /** Also removes the layers over it; default: false. */
      cascade?: boolean | undefined;
      /** Removes it anyway, which makes the layers over it unusable; default: false. */
      force?: boolean | undefined;
      /** Only reports what would be removed; default: false. */
      dryRun?: boolean | undefined;
    } = {},
  ): Promise<RemovedSnapshots> {
    const { cascade, force, dryRun } = options;
    const request = { tag, cascade: flag(cascade), force: flag(force), dry_run: flag(dryRun) };
    const answer = await this.#client.call("removeSnapshot", request, options);
    // A daemon of an earlier version answers without a body.
    const isAnswered = typeof answer === "object";
    return isAnswered ? answer : { removed: [{ tag }], freed_bytes: 0, dry_run: false };
  }
}

function flag(value: boolean | undefined): "true" | undefined {
  return value === true ? "true" : undefined;
}
