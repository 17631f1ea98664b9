import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { readRecipe } from "../../src/recipe/recipe.ts";

type Written = { json: object; files?: Record<string, string> };

/** Writes recipes beside each other; returns their directory. */
async function shelf(t: TestContext, recipes: Record<string, Written>): Promise<string> {
  const place = await temporaryDirectory(t);
  for (const [name, { json, files = {} }] of Object.entries(recipes)) {
    await mkdir(join(place, name));
    await writeFile(join(place, name, "recipe.json"), JSON.stringify({ version: 1, ...json }));
    for (const [file, text] of Object.entries(files)) await writeFile(join(place, name, file), text);
  }
  return place;
}

const tools = {
  json: { files: [{ from: "tool", to: "/opt/tool", mode: "0755" }], run: [["false"]] },
  files: { tool: "one", unnamed: "not a file of the recipe" },
};
const own = {
  json: { files_of: ["../tools"], files: [{ from: "own", to: "/etc/own" }] },
  files: { own: "" },
};
const targets = (files: readonly { to: string }[]) => files.map(({ to }) => to);

test("files_of adds the files of another recipe before its own, and nothing else of it", async (t) => {
  const place = await shelf(t, { tools, user: own });
  const { files, spec } = await readRecipe(join(place, "user"));
  assert.deepEqual(targets(files), ["/opt/tool", "/etc/own"]);
  assert.equal(files[0]?.mode, 0o755);
  assert.deepEqual(spec.run, []);
});

test("files_of is as if the files were named in the recipe: the digest covers their content", async (t) => {
  const place = await shelf(t, {
    tools,
    user: own,
    same: {
      json: { files: [...tools.json.files, { from: "own", to: "/etc/own" }] },
      files: { ...tools.files, own: "" },
    },
  });
  const before = await readRecipe(join(place, "user"));
  assert.equal(before.digest, (await readRecipe(join(place, "same"))).digest);
  await writeFile(join(place, "tools/tool"), "two");
  assert.notEqual((await readRecipe(join(place, "user"))).digest, before.digest);
});

test("files_of is a part of the step that copies the files", async (t) => {
  const user = { ...own, json: { ...own.json, steps: [{ run: "true" }] } };
  const { files, steps } = await readRecipe(join(await shelf(t, { tools, user }), "user"));
  assert.deepEqual(files, []);
  const [copy] = steps;
  assert.ok(copy?.kind === "copy");
  assert.deepEqual(targets(copy.files), ["opt/tool", "etc/own"]);
});

const refused: [string, object, RegExp][] = [
  ["a name", { files_of: ["tools"] }, /files_of\[0\]: must be the path of a recipe that begins with "\.\/"/],
  ["an absolute path", { files_of: ["/etc"] }, /files_of\[0\]: must be the path of a recipe/],
  [
    "a directory that is missing",
    { files_of: ["../none"] },
    /files_of\[0\]: there is no recipe "\.\.\/none"$/,
  ],
  [
    "a directory without a recipe",
    { files_of: ["../.."] },
    /files_of\[0\]: there is no recipe "\.\.\/\.\."$/,
  ],
  ["itself", { files_of: ["../user"] }, /files_of\[0\]: the recipe "\.\.\/user" has files_of itself$/],
  [
    "a recipe without files",
    { files_of: ["../bare"] },
    /files_of\[0\]: the recipe "\.\.\/bare" has no files$/,
  ],
  [
    "a recipe that is wrong",
    { files_of: ["../tools", "../broken"] },
    /files_of\[1\]: the recipe "\.\.\/broken": unknown key "gem"/,
  ],
  [
    "a file that leads out of the other recipe",
    { files_of: ["../leak"] },
    /files_of\[0\]: files\[0\]\.from: "link" is outside of the recipe$/,
  ],
];
for (const [what, json, message] of refused) {
  test(`files_of refuses ${what}`, async (t) => {
    const place = await shelf(t, {
      tools,
      bare: { json: {} },
      broken: { json: { gem: [] } },
      leak: { json: { files: [{ from: "link", to: "/x" }] } },
      user: { json },
    });
    await symlink("../tools/unnamed", join(place, "leak/link"));
    await rejectsWith(readRecipe(join(place, "user")), "invalid_recipe", message);
  });
}
