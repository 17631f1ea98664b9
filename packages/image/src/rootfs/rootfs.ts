/** Root file systems from recipes: the tree of their base, the recipe's files, one ext4 image. */
import { randomUUID } from "node:crypto";
import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { z } from "zod";
import { ensureEntry, requireSpace } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import type { BaseImage } from "../oci/base-image.ts";
import { openBase } from "./base-tree.ts";
import { makeImage } from "./ext4.ts";
import { removeAsRoot } from "../namespace.ts";
import type { Recipe } from "../recipe/recipe.ts";
import { copyFiles } from "./rootfs-files.ts";

export type Rootfs = {
  path: string;
  /** made from all inputs of the image */
  digest: string;
  diskMib: number;
  /** bytes that the image uses on the host */
  allocatedBytes: number;
  /** differs between two builds of the same digest; what is made over one cannot be used over the other */
  instance: string;
  /** the container image that it was made from */
  image?: BaseImage | undefined;
};

export const rootfsInfoSchema = z.object({
  digest: z.string(),
  diskMib: z.number(),
  allocatedBytes: z.number(),
  /** path of the recipe or file, for people */
  source: z.string(),
  instance: z.string().optional(),
});

const imageName = "rootfs.ext4";

/** More than the tree and the image of a small recipe need. */
const neededBytes = 2 ** 30;

/** The root file system of a recipe, built unless it is in the cache, or in any case with `isFresh`. */
export async function ensureRootfs(
  imageDir: string,
  recipe: Recipe,
  context: BuildContext & {
    isFresh?: boolean | undefined;
    /** Links the image before another build can replace it. */
    pin?: ((path: string) => Promise<void>) | undefined;
  } = {},
): Promise<Rootfs> {
  const { spec } = recipe;
  await using base = await openBase(imageDir, recipe, context);
  const { digest } = base;
  const entry = await ensureEntry({
    parent: join(imageDir, "rootfs"),
    digest,
    info: rootfsInfoSchema,
    signal: context.signal,
    lease: context.lease,
    isFresh: context.isFresh,
    pin: (directory) => context.pin?.(join(directory, imageName)) ?? Promise.resolve(),
    build: async (directory) => {
      await requireSpace(directory, neededBytes);
      const work = join(directory, "work");
      await mkdir(work);
      const tree = await base.make(work);
      context.onProgress?.("files", `Copying ${recipe.files.length} files of the recipe`);
      await copyFiles(tree, recipe.files, context.signal);
      const image = join(directory, imageName);
      context.onProgress?.("image", `Writing an ext4 image of ${spec.disk_mib} MiB`);
      await makeRecipeImage({
        tree,
        image,
        diskMib: spec.disk_mib,
        digest,
        clamp: base.clamp,
        signal: context.signal,
      });
      await removeAsRoot(work);
      return await imageInfo(image, { digest, diskMib: spec.disk_mib, source: recipe.dir });
    },
  });
  return { ...toRootfs(entry), image: base.image };
}

async function makeRecipeImage(input: Parameters<typeof makeImage>[0]): Promise<void> {
  try {
    await makeImage(input);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "invalid_image") throw error;
    throw new AppError("invalid_recipe", error.message, { details: { ...error.details }, cause: error });
  }
}

export async function imageInfo(
  image: string,
  known: { digest: string; diskMib: number; source: string },
): Promise<z.output<typeof rootfsInfoSchema>> {
  return { ...known, allocatedBytes: (await stat(image)).blocks * 512, instance: randomUUID() };
}

export function toRootfs(entry: z.output<typeof rootfsInfoSchema> & { directory: string }): Rootfs {
  const { directory, digest, diskMib, allocatedBytes, instance } = entry;
  // Entries of older versions have none.
  return { path: join(directory, imageName), digest, diskMib, allocatedBytes, instance: instance ?? digest };
}
