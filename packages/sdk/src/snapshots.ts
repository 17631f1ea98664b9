/** The snapshots of the daemon. */
import { AppError } from "@forkd/contract/wire";
import type {
  BuildEvent,
  HazardId,
  HazardResult,
  RemovedSnapshots,
  RequestOf,
  SnapshotDetail,
  SnapshotInfo,
  VerifyEvent,
  VerifyReport,
} from "@forkd/contract";
import type { CallOptions, Client, ListFilter } from "./client.ts";
import type { Branch } from "./sandbox.ts";
import { deriveSnapshot, type DeriveRequest } from "./derive.ts";

/** Progress within a step of a build. */
export type Progress = Extract<BuildEvent, { type: "progress" }>;
/** A step of a build that has ended, and its time. */
export type BuildStep = Extract<BuildEvent, { type: "step" }>;

/** Progress of a verification. */
export type VerifyProgress = Extract<VerifyEvent, { type: "progress" }>;

/** What a verification does, and who learns of its progress. */
export type VerifyOptions = CallOptions & {
  /** Number of children to fork, 2 to 32; default: 4. */
  n?: number | undefined;
  /** Checks only these hazards; default: all. */
  only?: readonly HazardId[] | undefined;
  /** Leaves the children and the branch for inspection; default: false. */
  keep?: boolean | undefined;
  /** Receives the progress; default: it is not reported. */
  onProgress?: ((progress: VerifyProgress) => void) | undefined;
  /** Receives each hazard when it was checked; default: they are not reported. */
  onHazard?: ((hazard: HazardResult) => void) | undefined;
};

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

  /**
   * Forks children of a snapshot, checks that they are safe and kills them. Resolves with the report, also if a
   * check failed: see its `outcome`. Abort stops it and removes the children.
   */
  async verify(tag: string, options: VerifyOptions = {}): Promise<VerifyReport> {
    const { n, only, keep, onProgress, onHazard } = options;
    const request = {
      tag,
      ...(n !== undefined && { n }),
      ...(only !== undefined && { only: [...only] }),
      ...(keep && { keep }),
    };
    for await (const event of await this.#client.lines("verifySnapshot", request, options)) {
      if (event.type === "progress") onProgress?.(event);
      else if (event.type === "hazard") onHazard?.(event.hazard);
      else if (event.type === "report") return event.report;
    }
    throw new AppError(
      "daemon_unreachable",
      `The daemon's answer ended before snapshot "${tag}" was checked`,
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
