/** What a recipe starts from: a Debian tree or a container image. */
import type { BuildContext } from "../context.ts";
import { digestOf } from "../files/digest.ts";
import { openImage, type BaseImage } from "../oci/base-image.ts";
import { sortedPackages } from "../recipe/recipe-schema.ts";
import type { Recipe } from "../recipe/recipe.ts";
import { makeDebianTree } from "./debian.ts";
import { writeEtc } from "./rootfs-files.ts";

/** The base of a recipe. Disposing it removes temporary files. */
type BaseTree = AsyncDisposable & {
  /** of the root file system: the recipe's, and that of the image if it has one */
  readonly digest: string;
  readonly image?: BaseImage | undefined;
  /** whether times of files may be changed to a fixed one */
  readonly clamp: boolean;
  /** Makes the directory tree below `work` and returns its path. */
  readonly make: (work: string) => Promise<string>;
};

export async function openBase(imageDir: string, recipe: Recipe, context: BuildContext): Promise<BaseTree> {
  const { suite, image } = recipe.spec.base;
  if (image === undefined) {
    return {
      digest: recipe.rootfsDigest,
      clamp: true,
      make: async (work) => {
        const packages = sortedPackages(recipe.spec);
        const tree = await makeDebianTree({ imageDir, suite, packages, work }, context);
        await writeEtc(tree);
        return tree;
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }
  const opened = await openImage({ imageDir, image, directory: recipe.dir }, context);
  return {
    // A tag can name another image tomorrow.
    digest: digestOf({ recipe: recipe.rootfsDigest, image: opened.contentDigest }),
    image: opened.base,
    // Programs compare the times of their files, Python those of its compiled modules.
    clamp: false,
    make: async (work) => (await opened.unpack(work)).tree,
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  };
}
