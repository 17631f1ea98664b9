export { readRecipe, type Recipe } from "./recipe/recipe.ts";
export { ensureKernel, type Kernel } from "./kernel/kernel.ts";
export { ensureInitramfs } from "./kernel/initramfs.ts";
export { ensureRootfs } from "./rootfs/rootfs.ts";
export { importRootfs } from "./rootfs/user-rootfs.ts";
export { importKernel } from "./kernel/user-kernel.ts";
export { missingPrograms } from "./packages.ts";
export { type BuildContext } from "./context.ts";
