/**
 * Names of services that a recipe must not use, because the snapshot that it extends has them: `forkd logs` finds a
 * service by its name.
 */
import { advice, AppError } from "@forkd/contract";
import { readRecipe, type Recipe } from "@forkd/image";
import { serviceNames } from "../../guest/service-names.ts";
import type { Runtime } from "../../runtime.ts";
import { findParent } from "./find-parent.ts";

/** Throws `invalid_recipe` if a service has a name that `parent` has `taken`. */
export function refuseTakenNames(
  recipe: { dir: string; services: readonly { name?: string | undefined }[] },
  parent: string,
  taken: readonly string[],
): void {
  for (const [index, { name }] of recipe.services.entries()) {
    if (name === undefined || !taken.includes(name)) continue;
    throw new AppError(
      "invalid_recipe",
      `Cannot use the recipe "${recipe.dir}": services[${index}].name: "${name}" is a service of "${parent}", which runs in this snapshot, too`,
      { details: { name, services: [...taken] }, remedy: advice("Give the service another name.") },
    );
  }
}

const maxParents = 8;

/**
 * Looks at the parents that a build makes first, so that a name that one of them uses is found before. Those of a
 * parent that is a snapshot are known when its child runs.
 */
export async function refuseNamesOfUnbuilt(
  runtime: Pick<Runtime, "branches" | "config" | "store">,
  { dir, spec: { services } }: Recipe,
  parent: { name: string; dir: string },
): Promise<void> {
  let unbuilt: typeof parent | undefined = services.length > 0 ? parent : undefined;
  for (let depth = 0; unbuilt && depth < maxParents; depth++) {
    const recipe = await readRecipe(unbuilt.dir);
    refuseTakenNames({ dir, services }, unbuilt.name, namesOf(recipe));
    if (recipe.spec.from === undefined) return;
    const { name, place }: Awaited<ReturnType<typeof findParent>> = await findParent(
      runtime,
      recipe,
      unbuilt.name,
    );
    unbuilt = place.kind === "recipe" ? { name, dir: place.dir } : undefined;
  }
}

/** Without a service that starts an image and has no name: its program is known when the image is. */
function namesOf({ spec }: Recipe): string[] {
  return serviceNames(
    spec.services.flatMap(({ name, argv }) =>
      name === undefined && argv === undefined ? [] : [{ name, argv: argv ?? [] }],
    ),
  );
}
