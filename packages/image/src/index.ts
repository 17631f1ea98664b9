export { readRecipe, type Recipe } from "./recipe.ts";
export { type RecipeFile, type RecipeSpec } from "./recipe-schema.ts";
export { ensureKernel, type Kernel } from "./kernel.ts";
export { ensureInitramfs, type Initramfs } from "./initramfs.ts";
export { ensureRootfs, type Rootfs } from "./rootfs.ts";
export { importRootfs } from "./user-rootfs.ts";
export { importKernel } from "./user-kernel.ts";
export { hostPrograms, missingPrograms, type HostProgram, type MissingProgram } from "./packages.ts";
export { type BuildContext } from "./context.ts";
