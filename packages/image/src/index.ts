export { readRecipe, type Recipe } from "./recipe/recipe.ts";
export { type RecipeFile, type RecipeSpec } from "./recipe/recipe-schema.ts";
export { ensureKernel, type Kernel } from "./kernel/kernel.ts";
export { ensureInitramfs, type Initramfs } from "./kernel/initramfs.ts";
export { ensureRootfs, type Rootfs } from "./rootfs/rootfs.ts";
export { importRootfs } from "./rootfs/user-rootfs.ts";
export { importKernel } from "./kernel/user-kernel.ts";
export { hostPrograms, missingPrograms, type HostProgram, type MissingProgram } from "./packages.ts";
export { type BuildContext } from "./context.ts";
