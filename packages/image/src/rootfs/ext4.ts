/** Creates ext4 images from directory trees, without mounting. */
import { truncate, writeFile } from "node:fs/promises";
import { advice, AppError } from "@forkd/contract";
import { runAsRoot } from "../namespace.ts";
import { ToolFailure } from "../tool.ts";

/** The latest time in an image (2020-01-01), so that equal trees give equal images. */
export const imageTime = "1577836800";

/** Enough to recover from a crash of the guest; small, because it is the most written part of the disk. */
function journalMib(diskMib: number): number {
  return diskMib < 64 ? 4 : 8;
}

/** A UUID from the first half of a digest. */
function digestUuid(digest: string): string {
  const hex = digest.slice(0, 32);
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** Arguments of mke2fs for an image whose identity comes from `digest`. */
function mke2fsArguments(image: string, tree: string, digest: string, diskMib: number): string[] {
  const uuid = digestUuid(digest);
  const options = `hash_seed=${digestUuid(digest.slice(32))},root_owner=0:0`;
  const layout = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-J", `size=${journalMib(diskMib)}`];
  return [...layout, "-L", "forkd", "-U", uuid, "-E", options, "-d", tree, image];
}

type ImageInput = {
  tree: string;
  image: string;
  diskMib: number;
  digest: string;
  /** changes the times of the tree's files; only for a tree that forkd created */
  clamp: boolean;
  signal?: AbortSignal | undefined;
};

/** Writes a sparse image of `diskMib` with the files of `tree`. Throws `invalid_image` if they do not fit. */
export async function makeImage({ tree, image, diskMib, digest, clamp, signal }: ImageInput): Promise<void> {
  if (clamp) await clampTimes(tree, signal);
  await writeFile(image, "", { flag: "wx" });
  await truncate(image, diskMib * 2 ** 20);
  try {
    await runAsRoot("mke2fs", mke2fsArguments(image, tree, digest, diskMib), {
      signal,
      env: { SOURCE_DATE_EPOCH: imageTime, E2FSPROGS_FAKE_TIME: imageTime },
    });
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error;
    const used = await treeMib(tree, signal);
    if (used * 1.05 + journalMib(diskMib) + diskMib / 50 < diskMib) throw error;
    throw new AppError("invalid_image", `Cannot fit ${used} MiB of files on a disk of ${diskMib} MiB`, {
      details: { used_mib: used, disk_mib: diskMib },
      remedy: advice(`Raise disk_mib to ${Math.ceil(used * 1.3) + 64} or more.`),
      cause: error,
    });
  }
}

/** Sets newer times to imageTime, as SOURCE_DATE_EPOCH requires. */
async function clampTimes(tree: string, signal: AbortSignal | undefined): Promise<void> {
  const touch = ["touch", "-h", "-d", `@${imageTime}`, "{}", "+"];
  await runAsRoot("find", [tree, "-newermt", `@${imageTime}`, "-exec", ...touch], { signal });
}

async function treeMib(tree: string, signal: AbortSignal | undefined): Promise<number> {
  const { stdout } = await runAsRoot("du", ["-sm", tree], { signal });
  return Number.parseInt(stdout, 10);
}
