/** Finds recipes: those that come with forkd, and directories. */
import { readdir, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { advice, AppError, similarNames } from "@forkd/contract/wire";

export const bundledDir = fileURLToPath(new URL("../../../../../recipes", import.meta.url));

type RecipePlace = { readonly name: string; readonly dir: string };

/**
 * Finds a directory with a recipe.json, given as the directory or the file, or a bundled recipe. A bare name
 * means a bundled one first.
 */
export async function findRecipe(text: string, recipesDir = bundledDir): Promise<RecipePlace> {
  const given = resolve(text);
  const own = basename(given) === "recipe.json" ? dirname(given) : given;
  const places = text.includes("/") || text === "." || own !== given ? [own] : [join(recipesDir, text), own];
  for (const dir of places) {
    if (await isFile(join(dir, "recipe.json"))) return { name: basename(dir), dir };
  }
  if (await isFile(join(recipesDir, text, "program.json"))) {
    throw new AppError(
      "recipe_not_found",
      `"${text}" is a program that uses a snapshot, not a recipe of one`,
      {
        remedy: advice(`Run \`forkd recipes demo ${text}\`, which builds the snapshot that it uses.`),
      },
    );
  }
  const names = await bundledRecipes(recipesDir);
  const known = names.length === 0 ? "" : `. Bundled recipes: ${names.join(", ")}`;
  throw new AppError(
    "recipe_not_found",
    `"${text}" is not a recipe: found no recipe.json in ${places.join(" or ")}${known}`,
    { details: similarNames(basename(own), names) },
  );
}

export async function bundledRecipes(recipesDir = bundledDir): Promise<string[]> {
  const names = await readdir(recipesDir).catch(() => []);
  const found = await Promise.all(
    names.map(async (name) => (await isFile(join(recipesDir, name, "recipe.json"))) && name),
  );
  return found.filter((name) => name !== false).toSorted();
}

function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (facts) => facts.isFile(),
    () => false,
  );
}
