import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { readRecipe } from "../../src/recipe/recipe.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";

const wrong: [string, unknown, RegExp][] = [
  ["no version", {}, /version: is missing; write 1$/],
  ["version 2", { version: 2 }, /version: must be 1$/],
  [
    "unknown key",
    { version: 1, gem: [] },
    /unknown key "gem"\. Known keys: version, description, base, from, apt, pip, npm, files/,
  ],
  [
    "misspelt keys",
    { version: 1, langauges: {}, sevices: [] },
    /unknown keys "langauges", "sevices"\. Did you mean "languages", "services"\?/,
  ],
  [
    "unknown key inside",
    { version: 1, base: { suit: "sid" } },
    /unknown key "suit" in base\. Did you mean "suite"\? Known keys: suite, packages, image$/,
  ],
  ["network mode", { version: 1, network: { mode: "half" } }, /network\.mode: must be "none" or "filtered"/],
  ["network rule", { version: 1, network: { rules: [""] } }, /network\.rules\[0\]: must /],
  [
    "network key",
    { version: 1, network: { allow: [] } },
    /unknown key "allow" in network\. Known keys: mode, rules/,
  ],
  ["no from", { version: 1, files: [{ to: "/a" }] }, /files\[0\]\.from: is missing/],
  ["packages in one string", { version: 1, base: { packages: "a b" } }, /base\.packages: must be a list/],
  [
    "package name",
    { version: 1, base: { packages: ["python3", "a b"] } },
    /base\.packages\[1\]: is not the name/,
  ],
  ["package option", { version: 1, base: { packages: ["-oDir=/"] } }, /base\.packages\[0\]/],
  ["suite", { version: 1, base: { suite: "../x" } }, /base\.suite/],
  [
    "image and packages",
    { version: 1, base: { image: "debian:12", packages: ["curl"] } },
    /base: has both an image and Debian packages; give one of them$/,
  ],
  ["image that is a path", { version: 1, base: { image: "./layout" } }, /base\.image: .*it is a path$/],
  [
    "entrypoint without an image",
    { version: 1, services: [{ entrypoint: true }] },
    /services: "entrypoint" needs a base\.image$/,
  ],
  [
    "service with argv and entrypoint",
    { version: 1, base: { image: "app" }, services: [{ argv: ["a"], entrypoint: true }] },
    /services\[0\]: needs either argv or "entrypoint": true$/,
  ],
  [
    "service without a program",
    { version: 1, services: [{ name: "a" }] },
    /services\[0\]: needs either argv/,
  ],
  [
    "memory too small",
    { version: 1, memory_mib: 79 },
    /memory_mib: must be at least 80: a guest with less memory does not boot$/,
  ],
  ["memory too large", { version: 1, memory_mib: 65_537 }, /memory_mib: must be at most 65536$/],
  ["half a vcpu", { version: 1, vcpus: 0.5 }, /vcpus: must be a whole number$/],
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
  ["variable name", { version: 1, env: { "A=B": "x" } }, /env\.A=B: is not the name of a variable$/],
  [
    "unknown hazard",
    { version: 1, require: ["entropy", "magic"] },
    /require\[1\]: must be "entropy" or "prng"/,
  ],
  ["hazard twice", { version: 1, require: ["clock", "clock"] }, /require: names a hazard twice/],
  ["no hazard", { version: 1, require: [] }, /require: must name a hazard/],
  ["not an object", [], /recipe\.json": must be an object$/],
  [
    "warmup twice",
    { version: 1, languages: { python: { warmup: "1", warmup_file: "w.py" } } },
    /languages\.python: has both warmup and warmup_file/,
  ],
  [
    "missing warmup_file",
    { version: 1, languages: { python: { warmup_file: "w.py" } } },
    /languages\.python\.warmup_file: "w\.py" is not in the recipe/,
  ],
  [
    "warmup_file elsewhere",
    { version: 1, languages: { node: { warmup_file: "../w.js" } } },
    /languages\.node\.warmup_file: must be a path inside/,
  ],
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

test("readRecipe() names the file, the line and the column of what is not JSON", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "recipe.json");
  const cases: [string, string][] = [
    ['{\n  "version": 1,\n  "env": { "É": x }\n}', "line 3, column 17: expected a value"],
    ['{\n  "version": 1,\n}', "line 3, column 1: expected a name in double quotes"],
    ['{ "version": 1', "line 1, column 15: expected a comma or the end, but the file ends"],
  ];
  for (const [text, message] of cases) {
    await writeFile(path, text);
    await assert.rejects(readRecipe(dir), {
      code: "invalid_recipe",
      message: `Cannot read the recipe "${path}": it is not JSON: ${message}`,
    });
  }
});

test("readRecipe() takes the path of a recipe.json", async (t) => {
  const dir = await temporaryDirectory(t);
  await writeFile(join(dir, "recipe.json"), JSON.stringify({ version: 1 }));
  assert.equal((await readRecipe(join(dir, "recipe.json"))).dir, dir);
});

test("readRecipe() reads the warm-up from a file of the recipe", async (t) => {
  const dir = await temporaryDirectory(t);
  const code = 'import json\n\njson.dumps("é")\n';
  await mkdir(join(dir, "src"));
  await writeFile(join(dir, "src", "warm.py"), code);
  const write = (python: object) =>
    writeFile(join(dir, "recipe.json"), JSON.stringify({ version: 1, languages: { python } }));
  await write({ warmup: code });
  const inline = await readRecipe(dir);
  await write({ warmup_file: "src/warm.py" });
  const fromFile = await readRecipe(dir);
  assert.deepEqual(fromFile.spec.languages, { python: { warmup: code } });
  assert.equal(fromFile.digest, inline.digest, "the digest is made from the content");

  await writeFile(join(dir, "src", "warm.py"), Buffer.from([0x61, 0xff]));
  await rejectsWith(readRecipe(dir), "invalid_recipe", /"src\/warm\.py" is not text in UTF-8/);
  await write({ warmup_file: "src" });
  await rejectsWith(readRecipe(dir), "invalid_recipe", /"src" is not a file/);
  await symlink("/etc/passwd", join(dir, "link.py"));
  await write({ warmup_file: "link.py" });
  await rejectsWith(readRecipe(dir), "invalid_recipe", /"link\.py" is outside of the recipe/);
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
    files_of: [],
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
