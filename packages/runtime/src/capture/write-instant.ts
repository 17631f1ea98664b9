/**
 * Writes a captured instant to the files of a snapshot, while the source runs again.
 *
 * It writes a layer over the nearest tagged snapshot, or with mode full the whole memory. The saved state of
 * a sandbox cannot be a parent: a layer over it is merged with it into one layer over the tagged snapshot
 * below.
 */
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "@forkd/base";
import {
  attachmentRoles,
  copyMemory,
  finishLayer,
  memoryBytes,
  mergeLayers,
  openLayer,
  snapshotDisks,
  type Draft,
  type FileDigest,
  type ManifestFacts,
  type StoredSnapshot,
} from "@forkd/store";
import { toSnapshotNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { forkdVersion } from "../version.ts";
import { inheritedRequirement } from "../verify/requirement.ts";
import { shortenDisk } from "./disk-chain.ts";
import type { Instant } from "./instant.ts";
import { unpin, type LayerBase } from "./layer-base.ts";
import { round } from "./stopwatch.ts";

type WriteRequest = {
  sandbox: Sandbox;
  source: SandboxMachine;
  base: LayerBase;
  instant: Instant;
  /** pause in milliseconds, for the manifest */
  pauseMs: number;
  signal?: AbortSignal | undefined;
  /** of a build: changes what the manifest says about a branch */
  describe?: ((facts: ManifestFacts) => ManifestFacts) | undefined;
};

export async function writeInstant(
  runtime: Pick<Runtime, "engine" | "log">,
  draft: Draft,
  request: WriteRequest,
): Promise<StoredSnapshot> {
  const { instant, base, sandbox, signal } = request;
  await using _base = base;
  await writeFile(draft.path("devices"), instant.devices, { mode: 0o600 });
  // A layer without writes was linked before the pause but is not part of the disk.
  await removeTree(draft.diskPath(instant.disks.length));
  if (base.memory) {
    await copyMemory(base.memory, draft.path("memory"), { signal });
    await instant.capture.apply(draft.path("memory"));
    await removeTree(draft.path("layer"));
  } else await writeLayer(draft, request);
  signal?.throwIfAborted();
  const isShortened = await shortenDisk(draft, instant.disks.length, signal);
  const known = knownDigests(draft, request, isShortened);
  const facts = factsOf(runtime, request);
  const sealed = await draft.seal(request.describe?.(facts) ?? facts, { known, ...(signal && { signal }) });
  for (const [index, path] of isShortened ? [] : instant.disks.entries()) {
    const digest = sealed.manifest.files.disks[index];
    if (digest) request.source.addFrozen(path, digest);
  }
  await unpin(draft, base);
  runtime.log.debug({ event: "branch.sealed", sandbox: sandbox.id, tag: draft.tag });
  return sealed;
}

async function writeLayer(draft: Draft, { instant, base, signal }: WriteRequest): Promise<void> {
  const { pages, extents } = await instant.capture.write();
  const { digest } = await finishLayer(draft.path("layer"), {
    memoryBytes: memoryBytes(base.own.manifest),
    pages,
    extents,
    ...(signal && { signal }),
  });
  if (base.lower === undefined) return;
  const upperPath = join(draft.dir, ".layer-upper");
  await rename(draft.path("layer"), upperPath);
  const lower = await openLayer(base.lower, base.own.manifest.files.layer?.digest ?? "");
  await mergeLayers(lower, await openLayer(upperPath, digest), draft.path("layer"));
  await removeTree(upperPath);
}

/** Digests of files that are shared with other snapshots, so that they are not read again. */
function knownDigests(
  draft: Draft,
  { base, source, instant, describe }: WriteRequest,
  isShortened: boolean,
): Map<string, FileDigest> {
  const { files } = base.own.manifest;
  const inherited = new Map(
    snapshotDisks(base.own).flatMap((path, index) => {
      const digest = files.disks[index];
      return digest ? [[path, digest] as const] : [];
    }),
  );
  const known = new Map<string, FileDigest>([[draft.path("rootfs"), files.rootfs]]);
  // What a build adds is not what its base has.
  for (const role of describe ? [] : attachmentRoles) {
    const digest = files[role];
    if (digest) known.set(role, digest);
  }
  if (isShortened) return known;
  for (const [index, path] of instant.disks.entries()) {
    const digest = inherited.get(path) ?? source.frozenDigest(path);
    if (digest) known.set(draft.diskPath(index), digest);
  }
  return known;
}

function factsOf(
  runtime: Pick<Runtime, "engine">,
  { base, sandbox, source, instant, pauseMs }: WriteRequest,
): ManifestFacts {
  const { version: _, files: __, parent: ___, ...inherited } = base.own.manifest;
  const { slirp: ____, ...machine } = inherited.machine;
  return {
    ...inherited,
    machine: { ...machine, ...(source.machine.hasSlirp && { slirp: true }) },
    forkd_version: forkdVersion,
    created_at_unix: Math.floor(Date.now() / 1000),
    engine: { name: runtime.engine.name, version: runtime.engine.version },
    env: { ...base.own.manifest.env, ...sandbox.facts.env },
    network: toSnapshotNetwork(sandbox.network),
    ...inheritedRequirement(base.own),
    agent_at_boundary: instant.atBoundary,
    kernels: instant.kernels,
    origin: { kind: "branch", sandbox: sandbox.id, mode: base.mode, pause_ms: round(pauseMs) },
    ...(base.mode !== "full" && base.parent && { parent: base.parent }),
  };
}
