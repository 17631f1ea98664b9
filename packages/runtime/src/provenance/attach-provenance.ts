/** Adds to a new snapshot what describes it: the packages of its guest, and the recipe that it was built from. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { plural, type CreateSnapshotRequest } from "@forkd/contract";
import { deadlineSignal } from "@forkd/contract/wire";
import { removeTree } from "@forkd/base";
import { packRecipe, type Recipe, type RecipeChanges } from "@forkd/image";
import type { AgentClient } from "@forkd/machine";
import {
  maxAttachmentBytes,
  type AttachmentRole,
  type Draft,
  type FileDigest,
  type StoredSnapshot,
} from "@forkd/store";
import { collectPackages, type GuestPackages } from "./collect-packages.ts";
import { spdxDocument } from "./spdx.ts";

type Progress = (step: string, message: string) => void;

/** A guest that takes longer has no list; the build does not wait for it. */
const collectMs = 120_000;

/** What a child of the snapshot has; undefined if it does not give that in time. */
export async function packagesOf(
  agent: AgentClient,
  { signal, onProgress }: { signal: AbortSignal; onProgress: Progress },
): Promise<GuestPackages | undefined> {
  using deadline = deadlineSignal(collectMs, signal);
  try {
    return await collectPackages(agent, deadline.signal);
  } catch (error) {
    if (!deadline.isLate) throw error;
    onProgress("check", "the guest did not list its packages in time; the snapshot has no SBOM");
    return undefined;
  }
}

/** The recipe as it was built, with what the request changed. Other hosts do not have a kernel of the user. */
export function builtRecipe(
  recipe: Recipe | undefined,
  request: CreateSnapshotRequest,
): { recipe: Recipe; changes: RecipeChanges } | undefined {
  if (!recipe || request.kernel !== undefined) return undefined;
  const { run, languages, memory_mib, vcpus, env } = request;
  return {
    recipe,
    changes: { run, languages, memory_mib, vcpus, env: env && { ...recipe.spec.env, ...env } },
  };
}

type Description = {
  packages: GuestPackages | undefined;
  built: ReturnType<typeof builtRecipe>;
};

/** Seals the draft again, with the attachments. The other files are not read again. */
export async function attachProvenance(
  draft: Draft,
  sealed: StoredSnapshot,
  { packages, built }: Description,
  { signal, onProgress }: { signal: AbortSignal; onProgress: Progress },
): Promise<void> {
  const { version: _, files: __, ...facts } = sealed.manifest;
  const sbom = packages && Buffer.from(spdxDocument(draft.tag, facts, packages));
  await attach(draft, "sbom", sbom, onProgress);
  await attach(draft, "recipe", built && (await packed(draft, built, onProgress)), onProgress);
  if (packages) onProgress("check", `listed ${plural(packages.packages.length, "package")} of the guest`);
  await draft.seal(facts, { signal, known: knownDigests(draft, sealed) });
}

async function packed(
  draft: Draft,
  { recipe, changes }: { recipe: Recipe; changes: RecipeChanges },
  onProgress: Progress,
): Promise<Buffer | undefined> {
  const scratch = join(draft.dir, ".recipe");
  try {
    const found = await packRecipe(recipe, { changes, scratch });
    if ("bytes" in found) return found.bytes;
    onProgress("check", `the recipe is not kept with the snapshot: ${found.problem}`);
    return undefined;
  } finally {
    await removeTree(scratch);
  }
}

/** A snapshot that extends another one has inherited what that has, as links: they are not written to. */
async function attach(
  draft: Draft,
  role: AttachmentRole,
  bytes: Buffer | undefined,
  onProgress: Progress,
): Promise<void> {
  await removeTree(draft.path(role));
  if (bytes === undefined) return;
  if (bytes.length <= maxAttachmentBytes) return await writeFile(draft.path(role), bytes, { mode: 0o600 });
  onProgress("check", `the ${role} is larger than ${maxAttachmentBytes >> 20} MiB and is not kept`);
}

function knownDigests(draft: Draft, { manifest }: StoredSnapshot): Map<string, FileDigest> {
  const { memory, devices, rootfs, disks } = manifest.files;
  return new Map([
    ...(memory ? [["memory", memory] as const] : []),
    ["devices", devices],
    ["rootfs", rootfs],
    ...disks.map((disk, index) => [draft.diskPath(index), disk] as const),
  ]);
}
