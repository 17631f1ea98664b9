import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { readRecipe } from "../../src/recipe/recipe.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";

const wrong: [string, unknown, RegExp][] = [
  ["no version", {}, /version: /],
  ["version 2", { version: 2 }, /version: /],
  ["unknown key", { version: 1, packges: [] }, /unknown key "packges"/],
  ["unknown key inside", { version: 1, base: { suit: "sid" } }, /unknown key "suit" in base/],
  [
    "package name",
    { version: 1, base: { packages: ["python3", "a b"] } },
    /base\.packages\[1\]: is not the name/,
  ],
  ["package option", { version: 1, base: { packages: ["-oDir=/"] } }, /base\.packages\[0\]/],
  ["suite", { version: 1, base: { suite: "../x" } }, /base\.suite/],
  ["memory too small", { version: 1, memory_mib: 63 }, /memory_mib/],
  ["memory too large", { version: 1, memory_mib: 65_537 }, /memory_mib/],
  ["half a vcpu", { version: 1, vcpus: 0.5 }, /vcpus/],
  ["65 vcpus", { version: 1, vcpus: 65 }, /vcpus/],
  ["disk too small", { version: 1, disk_mib: 1 }, /disk_mib/],
  [
    "absolute from",
    { version: 1, files: [{ from: "/etc/passwd", to: "/a" }] },
    /files\[0\]\.from: must be a path inside/,
  ],
  [
    "from with ..",
    { version: 1, files: [{ from: "a/../../b", to: "/a" }] },
    /files\[0\]\.from: must be a path inside/,
  ],
  ["relative to", { version: 1, files: [{ from: "a", to: "a" }] }, /files\[0\]\.to: must be an absolute/],
  [
    "to with ..",
    { version: 1, files: [{ from: "a", to: "/a/../b" }] },
    /files\[0\]\.to: must be a plain path/,
  ],
  [
    "to under a mount",
    { version: 1, files: [{ from: "a", to: "/proc/x" }] },
    /files\[0\]\.to: must not be in/,
  ],
  [
    "mode",
    { version: 1, files: [{ from: "a", to: "/a", mode: "0888" }] },
    /files\[0\]\.mode: must be three or four/,
  ],
  [
    "missing file",
    { version: 1, files: [{ from: "nothing", to: "/a" }] },
    /files\[0\]\.from: "nothing" is not in/,
  ],
  ["empty argv", { version: 1, run: [[]] }, /run\[0\]: must name a program/],
  ["NUL in argv", { version: 1, run: [["a", "b\0c"]] }, /run\[0\]\[1\]: must not contain a NUL/],
  ["unknown language", { version: 1, languages: { cobol: {} } }, /unknown key "cobol" in languages/],
  ["port", { version: 1, services: [{ argv: ["x"], ready: { port: 0 } }] }, /services\[0\]\.ready\.port/],
  ["variable name", { version: 1, env: { "A=B": "x" } }, /env/],
  ["not an object", [], /recipe\.json: /],
];

for (const [name, recipe, message] of wrong) {
  test(`readRecipe() refuses a recipe: ${name}`, async (t) => {
    const dir = await temporaryDirectory(t);
    await writeFile(join(dir, "recipe.json"), JSON.stringify(recipe));
    await rejectsWith(readRecipe(dir), "invalid_recipe", message);
  });
}

test("readRecipe() refuses a file that is not JSON, and names a directory without a recipe", async (t) => {
  const dir = await temporaryDirectory(t);
  await rejectsWith(readRecipe(dir), "recipe_not_found", /no recipe\.json/);
  await rejectsWith(readRecipe(join(dir, "none")), "recipe_not_found", /no recipe\.json/);
  await writeFile(join(dir, "recipe.json"), "{");
  await rejectsWith(readRecipe(dir), "invalid_recipe", /is not JSON/);
});

test("readRecipe() applies the defaults of the spec", async (t) => {
  const dir = await temporaryDirectory(t);
  await writeFile(join(dir, "recipe.json"), JSON.stringify({ version: 1, languages: { python: {} } }));
  const { spec } = await readRecipe(dir);
  assert.deepEqual(spec, {
    version: 1,
    description: "",
    base: { suite: "bookworm", packages: [] },
    files: [],
    run: [],
    languages: { python: { warmup: "" } },
    services: [],
    memory_mib: 512,
    vcpus: 1,
    disk_mib: 2048,
    env: {},
  });
});

test("readRecipe() lists directories with their files, links and modes", async (t) => {
  const dir = await temporaryDirectory(t);
  await mkdir(join(dir, "app"));
  await writeFile(join(dir, "app", "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  await writeFile(join(dir, "app", "data"), "x", { mode: 0o600 });
  await symlink("run.sh", join(dir, "app", "start"));
  const files = [
    { from: "app", to: "/opt/app" },
    { from: "app/data", to: "/etc/data", mode: "0400" },
  ];
  await writeFile(join(dir, "recipe.json"), JSON.stringify({ version: 1, files }));
  const recipe = await readRecipe(dir);
  assert.deepEqual(
    recipe.files.map(({ to, type, mode }) => `${to} ${type} ${mode.toString(8)}`),
    [
      "/opt/app directory 755",
      "/opt/app/data file 644",
      "/opt/app/run.sh file 755",
      "/opt/app/start link 777",
      "/etc/data file 400",
    ],
  );
});

test("readRecipe() refuses links that point outside of the recipe", async (t) => {
  const dir = await temporaryDirectory(t);
  await mkdir(join(dir, "app"));
  await symlink("/etc/passwd", join(dir, "stolen"));
  await writeFile(
    join(dir, "recipe.json"),
    JSON.stringify({ version: 1, files: [{ from: "stolen", to: "/a" }] }),
  );
  await rejectsWith(readRecipe(dir), "invalid_recipe", /"stolen" is outside of the recipe/);
  for (const target of ["/etc", "../../etc"]) {
    const inside = join(dir, "app", target.replaceAll("/", "_"));
    await symlink(target, inside);
    await writeFile(
      join(dir, "recipe.json"),
      JSON.stringify({ version: 1, files: [{ from: "app", to: "/a" }] }),
    );
    await rejectsWith(readRecipe(dir), "invalid_recipe", /points outside of the recipe/);
  }
});
