/** Finds what a recipe extends: a snapshot, or a recipe from which it has to be built first. */
import { stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { advice, AppError, tagPattern } from "@forkd/contract";
import type { Recipe } from "@forkd/image";
import type { Runtime } from "../../runtime.ts";

type Found = {
  /** tag of the snapshot */
  name: string;
  place: { kind: "snapshot" } | { kind: "recipe"; dir: string };
};

/** For the snapshot `tag`. A tag means the snapshot that has it, however it was made; a path means what the recipe there describes. */
export async function findParent(
  runtime: Pick<Runtime, "branches" | "config" | "store">,
  { spec, dir, parent }: Recipe,
  tag: string,
): Promise<Found> {
  const from = spec.from ?? "";
  const name = parent ? basename(parent.dir) : from;
  const refuse = (why: string, remedy: string): AppError =>
    new AppError("invalid_recipe", `Cannot use the recipe "${dir}": from: ${why}`, {
      details: { from },
      remedy: advice(remedy),
    });
  if (!tagPattern.test(name))
    throw refuse(`"${name}" cannot be the tag of a snapshot`, "Rename the directory.");
  if (name === tag)
    throw refuse(`"${name}" is the tag of the new snapshot, too`, "Give the new snapshot another tag.");
  runtime.branches.refuse(name);
  const snapshot = await runtime.store.get(name).catch((error: unknown) => {
    if (error instanceof AppError && error.code === "snapshot_not_found") return undefined;
    throw error;
  });
  if (snapshot) {
    const isOther = parent !== undefined && snapshot.manifest.recipe?.digest !== parent.digest;
    if (!isOther) return { name, place: { kind: "snapshot" } };
    throw refuse(
      `snapshot "${name}" was not built from "${from}" as it is now`,
      `Build "${from}" again, and replace the snapshot.`,
    );
  }
  if (parent) return { name, place: { kind: "recipe", dir: parent.dir } };
  const bundled = join(runtime.config.recipesDir, name);
  const isThere = await stat(join(bundled, "recipe.json")).then(
    (facts) => facts.isFile(),
    () => false,
  );
  if (isThere) return { name, place: { kind: "recipe", dir: bundled } };
  throw refuse(
    `there is neither a snapshot nor a bundled recipe "${name}"`,
    'Build the snapshot first. A recipe beside this one begins with "./".',
  );
}
