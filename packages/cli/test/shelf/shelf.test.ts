import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { findRecipe } from "../../src/guest/recipes.ts";
import { readOwn, readReleased, writeOwn } from "../../src/shelf/results.ts";
import { findEntry, readContents, readShelf } from "../../src/shelf/shelf.ts";

async function shelfOf(t: TestContext, files: Readonly<Record<string, string>>): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-shelf-"));
  t.after(() => rm(dir, { recursive: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(dir, path, ".."), { recursive: true });
    await writeFile(join(dir, path), text);
  }
  return dir;
}

const result = {
  recipe: "one",
  ok: true,
  at_unix: 1_700_000_000,
  version: "0.1.0",
  seconds: 1.5,
  snapshot: "one",
  accelerator: "tcg",
  facts: { n: 1 },
};

test("readShelf() lists recipes and programs, and leaves out other directories", async (t) => {
  const dir = await shelfOf(t, {
    "two/program.json": '{"version":1,"description":"uses one","uses":"one"}',
    "one/recipe.json": '{"version":1,"description":"first"}',
    "one/demo.py": "",
    "_shared/recipe.json": "{}",
    "other/README.md": "",
    "README.md": "",
  });
  const one = { name: "one", dir: join(dir, "one"), kind: "recipe", description: "first" };
  const two = { name: "two", dir: join(dir, "two"), kind: "program", description: "uses one" };
  assert.deepEqual(await readShelf(dir), [
    { ...one, snapshot: "one", demo: "demo.py" },
    { ...two, snapshot: "one", demo: undefined },
  ]);
  await assert.rejects(findEntry("tow", dir), {
    code: "recipe_not_found",
    message: '"tow" is not on the shelf. Bundled recipes: one, two',
    details: { similar: ["two"] },
  });
  await assert.rejects(findRecipe("two", dir), { code: "recipe_not_found", message: /is a program/ });
});

test("readShelf() lists a recipe whose file is not JSON or too large, with the reason", async (t) => {
  const dir = await shelfOf(t, {
    "a/recipe.json": "{",
    "b/recipe.json": " ".repeat(300_000),
    "c/recipe.json": "1",
  });
  const [a, b, c] = await readShelf(dir);
  assert.match(a?.description ?? "", /^recipe\.json cannot be read: .*JSON/);
  assert.match(b?.description ?? "", /^recipe\.json cannot be read: .*more than 262144 bytes$/);
  assert.equal(c?.description, "recipe.json cannot be read: it is not an object");
});

test("readContents() returns the first paragraph of the README without links", async (t) => {
  const dir = await shelfOf(t, {
    "one/recipe.json": '{"memory_mib":256}',
    "one/README.md": "# one\n\nSee [the\nguide](../guide.md). Short.\n\nMore.\n",
    "one/app/main.py": "",
  });
  const { summary, files, recipe } = await readContents(await findEntry("one", dir));
  assert.equal(summary, "See the guide. Short.");
  assert.deepEqual(files, ["README.md", "app", "app/main.py", "recipe.json"]);
  assert.deepEqual(recipe, { memory_mib: 256 });
});

test("writeOwn() replaces the last result and leaves no drafts; others are ignored", async (t) => {
  const dir = await shelfOf(t, { "demos/broken.json": "{", "demos/other.json": '{"recipe":"other","ok":1}' });
  await writeOwn(dir, { ...result, ok: false, error: "no" });
  await writeOwn(dir, result);
  assert.deepEqual(await readOwn(dir, "one"), result);
  assert.deepEqual((await readdir(join(dir, "demos"))).toSorted(), ["broken.json", "one.json", "other.json"]);
  for (const name of ["broken", "other", "none"]) assert.equal(await readOwn(dir, name), undefined, name);
});

test("readReleased() reads the results that have the known form", async (t) => {
  const dir = await shelfOf(t, {
    "results.json": JSON.stringify({ version: 1, results: [result, { recipe: 1 }] }),
  });
  assert.deepEqual([...(await readReleased(dir))], [["one", result]]);
  assert.equal((await readReleased(join(dir, "none"))).size, 0);
});
