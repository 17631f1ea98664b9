/** Snapshots of the daemon: made, awaited, flattened, removed. */
import { AppError } from "@forkd/contract/wire";
import type { BuildEvent, RequestOf, SnapshotDetail, SnapshotInfo } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { cancelled } from "./errors.ts";
import type { Branch } from "./sandbox.ts";
import { snapshotDiff, type DiffRequest } from "./snapshot-diff.ts";

export type Progress = Extract<BuildEvent, { type: "progress" }>;

/** First and longest time between two questions whether a snapshot is ready, in ms */
const pollMs = { first: 20, longest: 500 };

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

  /** Resolves when a branch made with `wait: false` is all on disk; rejects with `snapshot_failed` if it cannot be. */
  async ready(tag: string, options: CallOptions = {}): Promise<SnapshotInfo> {
    // A poll, because the daemon has no event for it.
    for (let waitMs = pollMs.first; ; waitMs = Math.min(waitMs * 2, pollMs.longest)) {
      const snapshot = (await this.list(options)).find((candidate) => candidate.tag === tag);
      if (snapshot === undefined)
        throw new AppError("snapshot_not_found", `No snapshot has the tag "${tag}"`, { details: { tag } });
      if (snapshot.status === "ready") return snapshot;
      if (snapshot.status === "failed")
        throw new AppError(
          "snapshot_failed",
          `Snapshot "${tag}" could not be written: ${snapshot.warning ?? "the daemon does not say why"}`,
          { details: { tag } },
        );
      await pause(waitMs, options.signal);
    }
  }

  /** Copies a snapshot into one without a parent. */
  compact(tag: string, to: string, options: CallOptions = {}): Promise<SnapshotInfo> {
    return this.#client.call("compact", { tag, to }, options);
  }

  /**
   * Forks `from`, runs a command in the child and branches it as `tag`. The child is killed in any case. A command that
   * fails rejects with CommandError and makes no snapshot.
   */
  diff(request: DiffRequest): Promise<Branch> {
    return snapshotDiff(this.#client, request);
  }

  /** `cascade`: also the layers over it. `force`: whatever depends on it, which makes layers over it unusable. */
  async remove(
    tag: string,
    options: CallOptions & { cascade?: boolean | undefined; force?: boolean | undefined } = {},
  ): Promise<void> {
    const { cascade, force } = options;
    await this.#client.call("removeSnapshot", { tag, cascade: flag(cascade), force: flag(force) }, options);
  }
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(cancelled(signal?.reason));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

function flag(value: boolean | undefined): "true" | undefined {
  return value === true ? "true" : undefined;
}
