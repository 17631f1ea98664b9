import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isPlainName } from "../../src/guest/guest-tree.ts";
import { bundledRecipes, findRecipe } from "../../src/guest/recipes.ts";

test("findRecipe() finds a bundled name or a directory, and otherwise lists the bundle", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-recipes-"));
  t.after(() => rm(dir, { recursive: true }));
  for (const name of ["b", "a"]) {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, "recipe.json"), "{}");
  }
  await mkdir(join(dir, "no-recipe"));
  assert.deepEqual(await bundledRecipes(dir), ["a", "b"]);
  assert.deepEqual(await findRecipe("a", dir), { name: "a", dir: join(dir, "a") });
  assert.deepEqual(await findRecipe(join(dir, "b"), "/nonexistent"), { name: "b", dir: join(dir, "b") });
  assert.deepEqual(await findRecipe(join(dir, "b", "recipe.json"), dir), { name: "b", dir: join(dir, "b") });
  await assert.rejects(findRecipe("c", dir), { code: "recipe_not_found", message: /Bundled recipes: a, b/ });
});

test("isPlainName() refuses names that leave a directory", () => {
  for (const name of ["a", "..a", ".hidden", "a b"]) assert.equal(isPlainName(name), true, name);
  for (const name of ["", ".", "..", "a/b", "../x", "/etc", "a\0b"])
    assert.equal(isPlainName(name), false, name);
});
