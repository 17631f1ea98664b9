import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { readRecipe, type Recipe } from "../../src/recipe/recipe.ts";
import { layerDigest, resolveSteps } from "../../src/recipe/resolve-steps.ts";
import { stepLabel } from "../../src/recipe/step-schema.ts";

type Files = Readonly<Record<string, string>>;

async function read(t: TestContext, recipe: object, files: Files = {}): Promise<Recipe> {
  const dir = await temporaryDirectory(t);
  return readIn(join(dir, "recipe"), recipe, files);
}

async function readIn(dir: string, recipe: object, files: Files = {}): Promise<Recipe> {
  await mkdir(join(dir, "app"), { recursive: true });
  await writeFile(join(dir, "app/main.py"), "print()");
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  await writeFile(join(dir, "recipe.json"), JSON.stringify({ version: 1, ...recipe }));
  return readRecipe(dir);
}

const wrong: [string, object, RegExp][] = [
  ["pip option", { pip: ["--index-url=http://x"] }, /pip\[0\]: must be a requirement like/],
  ["pip URL", { pip: ["x @ https://example.org/x.whl"] }, /pip\[0\]: must be a requirement/],
  ["pip archive", { pip: ["./x.tar.gz"] }, /pip\[0\]: must be a requirement/],
  ["pip outside", { pip: ["./../x.whl"] }, /pip\[0\]: must be a requirement/],
  ["pip missing file", { pip: ["./x.whl"] }, /pip\[0\]: ".\/x\.whl" is not in the recipe/],
  ["pip empty", { pip: [] }, /pip: must name a package/],
  ["npm option", { npm: ["--global"] }, /npm\[0\]: must be a package like/],
  ["npm URL", { npm: ["https://example.org/x.tgz"] }, /npm\[0\]: must be a package/],
  ["npm git", { npm: ["a/b"] }, /npm\[0\]: must be a package/],
  ["apt option", { apt: ["-oDir=/"] }, /apt\[0\]: must be a Debian package/],
  ["two kinds", { steps: [{ run: "a", user: "b" }] }, /steps\[0\]: must have exactly one of run, copy/],
  ["no kind", { steps: [{}] }, /steps\[0\]: must have exactly one of/],
  ["unknown kind", { steps: [{ rum: "a" }] }, /unknown key "rum" in steps\[0\]\. Did you mean "run"\?/],
  ["run number", { steps: [{ run: 1 }] }, /steps\[0\]\.run: must be shell text or a list of arguments/],
  ["empty argv", { steps: [{ run: [] }] }, /steps\[0\]\.run: must name a program/],
  [
    "copy outside",
    { steps: [{ copy: { from: "../x", to: "/x" } }] },
    /steps\[0\]\.copy\.from: must be a path/,
  ],
  [
    "copy to /tmp",
    { steps: [{ copy: { from: "app", to: "/tmp/x" } }] },
    /copy "app" to "\/tmp\/x": must not be/,
  ],
  ["copy missing", { steps: [{ copy: { from: "x", to: "/x" } }] }, /steps\[0\]\.copy\.from: "x" is not in/],
  ["user", { steps: [{ user: "a b" }] }, /steps\[0\]\.user: is not the name/],
  ["steps and dockerfile", { steps: [], dockerfile: "D" }, /dockerfile: the recipe has steps, too/],
  ["no dockerfile", { dockerfile: "D" }, /dockerfile: "D" is not in the recipe/],
  ["from with base", { from: "x", base: {} }, /base: cannot be given with from/],
  ["from with disk", { from: "x", disk_mib: 100 }, /disk_mib: cannot be given with from/],
  ["from absolute", { from: "/etc" }, /from: must be a bundled recipe, the tag of a snapshot/],
  ["from missing", { from: "./none" }, /from: there is no recipe "\.\/none"/],
  ["from itself", { from: "../recipe" }, /from: "\.\.\/recipe" extends this recipe/],
  ["too many", { steps: Array.from({ length: 61 }, () => ({ run: "true" })) }, /steps: must have at most 60/],
];

for (const [name, recipe, message] of wrong) {
  test(`readRecipe() refuses steps: ${name}`, async (t) => {
    await rejectsWith(read(t, recipe), "invalid_recipe", message);
  });
}

test("readRecipe() puts the steps of a recipe in order: apt, pip, npm, files, steps", async (t) => {
  const recipe = await read(t, {
    files: [{ from: "app", to: "/opt/app" }],
    steps: [
      { env: { A: "1" } },
      { workdir: "/w" },
      { run: "make" },
      { copy: { from: "app/main.py", to: "in/" } },
    ],
    npm: ["lodash"],
    pip: ["numpy==1.26.4"],
    apt: ["jq"],
  });
  assert.deepEqual(
    recipe.files,
    [],
    "files are a step, so that the root file system does not depend on them",
  );
  assert.deepEqual(recipe.steps.map(stepLabel), [
    "APT jq",
    "PIP numpy==1.26.4",
    "NPM lodash",
    "COPY 1 files /",
    "ENV A",
    "WORKDIR /w",
    "RUN make",
    "COPY app/main.py in/main.py",
  ]);
  const { layers, state } = resolveSteps(recipe.steps, { env: { B: "2" } });
  assert.deepEqual(
    layers.map(({ number, total }) => `${number}/${total}`),
    ["1/8", "2/8", "3/8", "4/8", "7/8", "8/8"],
  );
  assert.deepEqual(state, { env: { A: "1", B: "2" }, workdir: "/w" });
  const copied = layers.at(-1)?.step;
  assert.equal(copied?.kind === "copy" && copied.to, "/w/in/main.py");
});

test("readRecipe() reads the steps of a Dockerfile, and names the line of a mistake", async (t) => {
  const dockerfile = "WORKDIR /srv\nCOPY app .\nRUN make";
  const recipe = await read(t, { dockerfile: "Dockerfile" }, { Dockerfile: dockerfile });
  assert.deepEqual(recipe.steps.map(stepLabel), ["WORKDIR /srv", "COPY app .", "RUN make"]);
  const wrongUser = read(t, { dockerfile: "Dockerfile" }, { Dockerfile: "RUN true\nUSER a:b" });
  await rejectsWith(wrongUser, "invalid_recipe", /dockerfile: line 2: user: is not the name/);
});

test("the key of a layer changes with its step, its files, its state and what is below, and with nothing else", async (t) => {
  const keys = async (steps: object[], { below = "rootfs", ...more } = {}, files: Files = {}) => {
    const recipe = await read(t, { steps, ...more }, files);
    let instance = below;
    // As if every layer were made once and found again by its key.
    return resolveSteps(recipe.steps, { env: recipe.spec.env }).layers.map(
      (step) => (instance = layerDigest(instance, step)),
    );
  };
  const steps = [{ run: "one" }, { copy: { from: "app", to: "/app" } }, { run: "two" }];
  const first = await keys(steps);
  assert.deepEqual(await keys(steps, { description: "words" } as object), first);
  const lastChanged = await keys([...steps.slice(0, 2), { run: "three" }]);
  assert.deepEqual(lastChanged.slice(0, 2), first.slice(0, 2), "the steps before are found again");
  assert.notEqual(lastChanged[2], first[2]);
  const added = await keys([...steps, { pip: ["numpy"] }]);
  assert.deepEqual(added.slice(0, 3), first);
  const otherFile = await keys(steps, {}, { "app/main.py": "other" });
  assert.equal(otherFile[0], first[0]);
  assert.notEqual(otherFile[1], first[1]);
  assert.notEqual(otherFile[2], first[2], "what is above a changed layer is made again");
  const withState = [
    await keys([{ env: { A: "1" } }, ...steps]),
    await keys([{ workdir: "/w" }, ...steps]),
    await keys([{ user: "u" }, ...steps]),
    await keys(steps, { env: { A: "2" } } as object),
    await keys(steps, { below: "other" }),
  ].map(([key]) => key);
  assert.equal(new Set([first[0], ...withState]).size, 1 + withState.length);
});

test("the digest of a recipe covers its steps and the recipe that it extends", async (t) => {
  const dir = await temporaryDirectory(t);
  const base = { steps: [{ run: "one" }] };
  const digest = async (recipe: object, files: Files = {}) =>
    (await readIn(join(dir, "child"), recipe, files)).digest;
  const parent = await readIn(join(dir, "parent"), { base: { packages: ["python3"] } });
  const first = await digest(base);
  const extended = await digest({ from: "../parent", ...base });
  await readIn(join(dir, "parent"), { base: { packages: ["python3", "jq"] } });
  const otherParent = await digest({ from: "../parent", ...base });
  const others = [
    extended,
    otherParent,
    await digest({ from: "parent", ...base }),
    await digest({ steps: [{ run: "two" }] }),
    await digest({ steps: [...base.steps, ...base.steps] }),
    await digest({ pip: ["a"] }),
    await digest({ apt: ["a1"] }),
    await digest({ npm: ["a"] }),
    await digest({ pip: ["./a.whl"] }, { "a.whl": "1" }),
    await digest({ pip: ["./a.whl"] }, { "a.whl": "2" }),
  ];
  assert.equal(new Set([first, ...others]).size, 1 + others.length);
  assert.equal(parent.spec.memory_mib, 512);
  const child = await readIn(join(dir, "child"), { from: "../parent" });
  assert.equal(
    child.spec.memory_mib,
    undefined,
    "the memory of a recipe that extends another is that of the other",
  );
});

test("recipes without steps have the digests that they had before there were steps", async (t) => {
  const recipe = await read(t, { base: { packages: ["python3"] }, files: [{ from: "app", to: "/app" }] });
  assert.equal(recipe.rootfsDigest, "79fb653e9512ccb63a51ce681e6504825ae73d3ee0b59f83b110eb305b1aabf4");
  assert.equal(recipe.digest, "9fcb9fd4b53909b70e0080898c91919ec10a80a5afd7a1954f3fdfaadd36e53c");
});
