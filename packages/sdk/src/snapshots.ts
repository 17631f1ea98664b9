/** Snapshots of the daemon: made, awaited, flattened, removed. */
import { AppError } from "@forkd/contract/wire";
import type { BuildEvent, RequestOf, SnapshotDetail, SnapshotInfo } from "@forkd/contract";
import type { CallOptions, Client, ListFilter } from "./client.ts";
import type { Branch } from "./sandbox.ts";
import { snapshotDiff, type DiffRequest } from "./derive.ts";

export type Progress = Extract<BuildEvent, { type: "progress" }>;

export class Snapshots {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  /** All that match, by tag; with `limit` that many at most. */
  list({ signal, ...filter }: CallOptions & ListFilter<"listSnapshots"> = {}): Promise<SnapshotInfo[]> {
    return this.#client.list("listSnapshots", filter, { signal });
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
    const early = await this.#settled(tag, options);
    if (early) return early;
    // Listening begins before the list is read again, so that nothing falls in between.
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

  /** undefined while it is written */
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

function flag(value: boolean | undefined): "true" | undefined {
  return value === true ? "true" : undefined;
}
