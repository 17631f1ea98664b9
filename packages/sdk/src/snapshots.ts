/** The snapshots of the daemon. */
import { AppError } from "@forkd/contract/wire";
import type { HazardId, Language } from "@forkd/contract";
import type { CallOptions, Client, Content } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { filterOf, refuseUnknown, requestOf } from "./convert/request.ts";
import { within } from "./deadline.ts";
import { deriveSnapshot, type DeriveRequest } from "./derive.ts";
import { paginate, type Paginator } from "./paginator.ts";
import type { Branch } from "./sandbox.ts";
import { Stream } from "./stream.ts";
import type {
  BuildStep,
  HazardResult,
  PackedArchive,
  PackProgress,
  Progress,
  RemovedSnapshots,
  SnapshotDetail,
  SnapshotInfo,
  UnpackedArchive,
  VerifyProgress,
  VerifyReport,
} from "./types.ts";

/** Which snapshots to list. */
export type SnapshotFilter = {
  /** Only the snapshot with this tag; default: all. */
  tag?: string | undefined;
  /** Only snapshots in this state; default: all. */
  state?: SnapshotInfo["status"] | undefined;
  /** Only direct layers over this snapshot; default: all. */
  parent?: string | undefined;
  /** Only branches of the sandbox with this id; default: all. */
  branchedFrom?: string | undefined;
  /** Maximum number of entries; default: all. */
  limit?: number | undefined;
};

/** What a snapshot is built from: a recipe, a container image, or a root file system. Paths are on the daemon's host. */
export type BuildRequest = {
  /** Tag of the new snapshot. */
  tag: string;
  /** Directory of a recipe, or its recipe.json; default: `image` or `rootfs` is given. */
  recipe?: string | undefined;
  /** An ext4 image, a tar archive or a directory; default: `recipe` or `image` is given. */
  rootfs?: string | undefined;
  /**
   * A container image: a name in a registry, `oci:PATH[:TAG]` or `docker-archive:PATH[:NAME:TAG]`; default:
   * `recipe` or `rootfs` is given.
   */
  image?: string | undefined;
  /** Starts ENTRYPOINT and CMD of the image, perhaps until a port accepts; default: nothing is started. */
  start?: { readyPort?: number | undefined } | undefined;
  /** A Linux kernel image; default: Debian's cloud kernel. */
  kernel?: string | undefined;
  /** Directory with the modules of that kernel; default: drivers are built in. */
  modules?: string | undefined;
  /** Memory of the guest in MiB; default: that of the recipe, or 256. */
  memoryMib?: number | undefined;
  /** CPUs of the guest; default: that of the recipe, or 1. */
  vcpus?: number | undefined;
  /** Disk of the guest in MiB; default: that of the recipe, or as large as the files need. */
  diskMib?: number | undefined;
  /** Environment of all commands in the guest; default: that of the recipe. */
  env?: Record<string, string> | undefined;
  /** Commands to run before the snapshot, each as program and arguments; default: none. */
  run?: readonly (readonly string[])[] | undefined;
  /** Interpreters to warm up, and the code for it; default: those of the recipe. */
  languages?: Partial<Record<Language, { warmup?: string | undefined }>> | undefined;
  /** Replaces a snapshot that has this tag; default: false. */
  force?: boolean | undefined;
  /** Makes the root file system, and the steps of the recipe, again; default: false. */
  noCache?: boolean | undefined;
  /** Longest wait for the agent of the guest in ms, rounded up to seconds; default: 60000. */
  bootWaitMs?: number | undefined;
};

/** Who learns of the progress of a build. */
export type BuildOptions = CallOptions & {
  /** Receives the progress within steps; default: it is not reported. */
  onProgress?: ((progress: Progress) => void) | undefined;
  /** Receives each step when it has ended, with its time; default: steps are not reported. */
  onStep?: ((step: BuildStep) => void) | undefined;
};

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

/** How small an archive is. */
export type ArchiveOptions = CallOptions & {
  /** Level of zstd, 1 (fast) to 19 (small); default: 7. */
  level?: number | undefined;
};

/** How a snapshot is packed, and who learns of the progress. */
export type PackOptions = ArchiveOptions & {
  /** Receives the progress; default: it is not reported. */
  onProgress?: ((progress: PackProgress) => void) | undefined;
};

/** What becomes of an archive. */
export type UnpackOptions = CallOptions & {
  /** Tag of the snapshot; default: the tag under which it was packed. */
  tag?: string | undefined;
  /** Replaces another snapshot that has this tag; default: false. */
  force?: boolean | undefined;
};

/** Builds, lists and removes snapshots. */
export class Snapshots {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the snapshots that match, ordered by tag; default: all. */
  list(filter: SnapshotFilter = {}, options: CallOptions = {}): Paginator<SnapshotInfo> {
    return paginate(this.#client, "listSnapshots", { filter, options }, fromWire);
  }

  /** Describes a snapshot. */
  info(
    tag: string,
    options: CallOptions & {
      /** Compares the digests of its files; default: false. */
      verify?: boolean | undefined;
    } = {},
  ): Promise<SnapshotDetail> {
    return this.#client.invoke("snapshotInfo", { tag }, options);
  }

  /** Returns the packages that the build found in the guest, as an SPDX 2.3 document with its own names. */
  sbom(tag: string, options: CallOptions = {}): Promise<Record<string, unknown>> {
    refuseUnknown("snapshotSbom", options, []);
    return this.#client.call("snapshotSbom", { tag }, options);
  }

  /** Builds a snapshot. Abort stops the build and removes its files. */
  async build(request: BuildRequest, options: BuildOptions = {}): Promise<SnapshotInfo> {
    refuseUnknown("createSnapshot", options, ["onProgress", "onStep"]);
    const wire = filterOf("createSnapshot", {}, request);
    for await (const line of await this.#client.lines("createSnapshot", wire, options)) {
      const event = fromWire(line);
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
    const { onProgress, onHazard } = options;
    const request = requestOf("verifySnapshot", { tag }, options, ["onProgress", "onHazard"]);
    for await (const line of await this.#client.lines("verifySnapshot", request, options)) {
      const event = fromWire(line);
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
    refuseUnknown("ready", options, []);
    return within("ready", options, (timed) => this.#ready(tag, timed));
  }

  async #ready(tag: string, options: CallOptions): Promise<SnapshotInfo> {
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
    const [snapshot] = (await this.list({ tag }, options).all()).filter((candidate) => candidate.tag === tag);
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

  /**
   * Prepares the archive of a snapshot and its parents, so that `archive()` with the same level begins at once.
   * Abort stops it.
   */
  async pack(tag: string, options: PackOptions = {}): Promise<PackedArchive> {
    const request = requestOf("packSnapshot", { tag }, options, ["onProgress"]);
    for await (const line of await this.#client.lines("packSnapshot", request, options)) {
      const event = fromWire(line);
      if (event.type === "progress") options.onProgress?.(event);
      else if (event.type === "packed") return event.packed;
    }
    throw new AppError("daemon_unreachable", `The daemon's answer ended before snapshot "${tag}" was packed`);
  }

  /** Reads the archive of a snapshot and its parents in chunks. */
  archive(tag: string, options: ArchiveOptions = {}): Stream<Uint8Array> {
    return new Stream((signal) => this.#archive(tag, { ...options, signal }), options.signal);
  }

  async *#archive(tag: string, options: ArchiveOptions): AsyncGenerator<Uint8Array> {
    yield* await this.#client.bytes(
      "snapshotArchive",
      requestOf("snapshotArchive", { tag }, options),
      options,
    );
  }

  /**
   * Makes the snapshots of an archive. They have their tags only when all of it was checked. An archive has no
   * signature, and the trust list does not apply to it.
   */
  async unpack(archive: Content, options: UnpackOptions = {}): Promise<UnpackedArchive> {
    const request = requestOf("unpackSnapshot", {}, options);
    return fromWire(await this.#client.upload("unpackSnapshot", request, archive, options));
  }

  /** Copies a snapshot into a new one (`to`) without a parent. */
  compact(tag: string, to: string, options: CallOptions = {}): Promise<SnapshotInfo> {
    return this.#client.invoke("compact", { tag, to }, options);
  }

  /**
   * Forks `from`, runs a command in the child, branches the child as `tag` and kills it. If the command
   * fails, the call rejects with CommandError and makes no snapshot.
   */
  derive(request: DeriveRequest): Promise<Branch> {
    return deriveSnapshot(this.#client, request);
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
    const answer: RemovedSnapshots | undefined = await this.#client.invoke(
      "removeSnapshot",
      { tag },
      options,
    );
    // A daemon of an earlier version answers without a body.
    return answer ?? { removed: [{ tag }], freedBytes: 0, dryRun: false };
  }
}
