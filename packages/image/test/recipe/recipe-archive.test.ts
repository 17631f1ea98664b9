import assert from "node:assert/strict";
import { chmod, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { runProgram } from "@forkd/base";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { encodeTar, type TarEntry } from "../../src/files/tar.ts";
import { packRecipe, unpackRecipe } from "../../src/recipe/recipe-archive.ts";
import { readRecipe } from "../../src/recipe/recipe.ts";

const recipeJson = {
  version: 1,
  files: [
    { from: "./app", to: "/srv/app" },
    { from: "tool.sh", to: "/usr/bin/tool", mode: "0755" },
    { from: "alias", to: "/etc/alias" },
  ],
  run: [["true"]],
  languages: { python: { warmup_file: "code/warm.py" } },
};
const longName = `${"d".repeat(90)}/${"f".repeat(90)}`;

async function makeRecipe(t: TestContext): Promise<{ dir: string; scratch: () => string }> {
  const place = await temporaryDirectory(t);
  const dir = join(place, "recipe");
  for (const name of ["app", `app/${"d".repeat(90)}`, "app/empty", "code", ".git"])
    await mkdir(join(dir, name), { recursive: true });
  await writeFile(join(dir, "recipe.json"), JSON.stringify(recipeJson));
  await writeFile(join(dir, "app/main.py"), "print(1)\n");
  await writeFile(join(dir, `app/${longName}`), "deep");
  await symlink("main.py", join(dir, "app/link"));
  await writeFile(join(dir, "tool.sh"), "#!/bin/sh\n");
  await chmod(join(dir, "tool.sh"), 0o755);
  await symlink("tool.sh", join(dir, "alias"));
  await writeFile(join(dir, "code/warm.py"), "x = 1\n");
  await writeFile(join(dir, ".env"), "TOKEN=s3cret\n");
  await writeFile(join(dir, ".git/config"), "private\n");
  let count = 0;
  return { dir, scratch: () => join(place, `scratch-${count++}`) };
}

async function pack(dir: string, scratch: string, changes = {}): Promise<Buffer> {
  const packed = await packRecipe(await readRecipe(dir), { changes, scratch });
  assert.ok("bytes" in packed, JSON.stringify(packed));
  return packed.bytes;
}

test("a packed recipe is the same recipe, with the files that it names and no others", async (t) => {
  const { dir, scratch } = await makeRecipe(t);
  const bytes = await pack(dir, scratch());
  const target = scratch();
  await unpackRecipe(bytes, target);
  assert.equal((await readRecipe(target)).digest, (await readRecipe(dir)).digest);
  assert.deepEqual((await readdir(target)).sort(), ["alias", "app", "code", "recipe.json", "tool.sh"]);
  assert.equal(bytes.includes("s3cret"), false);
  assert.equal(await readFile(join(target, "recipe.json"), "utf8"), JSON.stringify(recipeJson));
});

test("equal recipes give equal archives, which tar reads", async (t) => {
  const [one, other] = [await makeRecipe(t), await makeRecipe(t)];
  const bytes = await pack(one.dir, one.scratch());
  assert.ok(bytes.equals(await pack(other.dir, other.scratch())));
  const file = one.scratch();
  await writeFile(file, bytes);
  const { stdout } = await runProgram("tar", ["--list", "--file", file]);
  assert.ok(stdout.includes(`app/${longName}\n`));
  assert.ok(stdout.includes("code/warm.py\n"));
});

test("what a build was asked for replaces keys of the recipe", async (t) => {
  const { dir, scratch } = await makeRecipe(t);
  const changes = { memory_mib: 300, env: { A: "1" }, languages: { node: { warmup: "1" } } };
  const target = scratch();
  await unpackRecipe(await pack(dir, scratch(), changes), target);
  const { spec } = await readRecipe(target);
  assert.deepEqual([spec.memory_mib, spec.env, Object.keys(spec.languages)], [300, { A: "1" }, ["node"]]);
  assert.deepEqual(spec.run, [["true"]]);
});

test("a recipe that is too large or has too long names is not packed, with the reason", async (t) => {
  const { dir, scratch } = await makeRecipe(t);
  await writeFile(join(dir, "app/large"), Buffer.alloc(65 << 20));
  const packed = await packRecipe(await readRecipe(dir), { changes: {}, scratch: scratch() });
  assert.deepEqual(packed, { problem: "it is larger than 64 MiB" });
  await writeFile(join(dir, "app/large"), "");
  await writeFile(join(dir, "app", "n".repeat(200)), "");
  const long = await packRecipe(await readRecipe(dir), { changes: {}, scratch: scratch() });
  assert.match("problem" in long ? long.problem : "", /is too long for an archive/);
});

const file = (path: string, content = "x"): TarEntry => ({
  path,
  type: "file",
  mode: 0o644,
  content: Buffer.from(content),
});
const recipeOf = (keys: object): TarEntry => file("recipe.json", JSON.stringify({ version: 1, ...keys }));
const link = (path: string, target: string): TarEntry => ({ path, type: "link", target });
const hostile: Record<string, TarEntry[]> = {
  "links that lead outside together": [link("here", "."), link("up", "here/.."), link("l", "up/..")],
  "an archive of this host": [recipeOf({ base: { image: "docker-archive:/srv/image.tar" } })],
  "a path that leads outside": [file("../x")],
  "an absolute path": [file("/tmp/x")],
  "a path with a dot": [file("a/./x")],
  "an empty path": [file("")],
  "a link that leads outside": [{ path: "l", type: "link", target: "../../etc" }],
  "an absolute link": [{ path: "l", type: "link", target: "/etc" }],
  "a file below a link": [{ path: "a", type: "link", target: "b" }, file("a/x")],
  "a path that is there twice": [file("x"), file("x")],
  "a recipe that extends one of this host": [recipeOf({ from: "../../private" })],
  "a recipe with files of one of this host": [recipeOf({ files_of: ["../../private"] })],
  "a recipe over an image of this host": [recipeOf({ base: { image: "oci:/srv/private" } })],
  "a recipe.json that is a link": [
    { path: "recipe.json", type: "link", target: "x" },
    { ...recipeOf({ from: "../../private" }), path: "x" },
  ],
};
for (const [name, entries] of Object.entries(hostile)) {
  test(`unpackRecipe() refuses ${name}`, async (t) => {
    const target = join(await temporaryDirectory(t), "new");
    await rejectsWith(
      unpackRecipe(encodeTar(entries), target),
      "invalid_recipe",
      /^Cannot unpack the recipe: /,
    );
  });
}

test("unpackRecipe() refuses bytes that are not an archive, cut ones and changed ones", async (t) => {
  const { dir, scratch } = await makeRecipe(t);
  const bytes = await pack(dir, scratch());
  const changed = Buffer.from(bytes);
  changed[3] = 0x41;
  const device = encodeTar([file("x")]);
  device[156] = "3".charCodeAt(0);
  for (const each of [Buffer.alloc(0), Buffer.from("no"), bytes.subarray(0, 700), changed, device])
    await rejectsWith(unpackRecipe(each, scratch()), "invalid_recipe");
});

test("a packed recipe has the files of its steps, and one that extends a recipe beside it is not packed", async (t) => {
  const { dir, scratch } = await makeRecipe(t);
  const recipe = { version: 1, pip: ["./code/x.whl", "numpy"], dockerfile: "Dockerfile" };
  await writeFile(join(dir, "recipe.json"), JSON.stringify(recipe));
  await writeFile(join(dir, "Dockerfile"), "COPY tool.sh /opt/\nRUN true");
  await writeFile(join(dir, "code/x.whl"), "wheel");
  const target = scratch();
  await unpackRecipe(await pack(dir, scratch()), target);
  assert.equal((await readRecipe(target)).digest, (await readRecipe(dir)).digest);
  assert.deepEqual((await readdir(target)).sort(), ["Dockerfile", "code", "recipe.json", "tool.sh"]);
  const child = join(dir, "../child");
  await mkdir(child);
  await writeFile(join(child, "recipe.json"), JSON.stringify({ version: 1, from: "../recipe" }));
  const packed = await packRecipe(await readRecipe(child), { changes: {}, scratch: scratch() });
  assert.deepEqual(packed, { problem: "it extends a recipe beside it" });
});

test("a packed recipe has the files of other recipes as its own", async (t) => {
  const { dir, scratch } = await makeRecipe(t);
  const user = join(dir, "../user");
  await mkdir(user);
  await writeFile(join(user, "own"), "own\n");
  const recipe = { version: 1, files_of: ["../recipe"], files: [{ from: "own", to: "/etc/own" }] };
  await writeFile(join(user, "recipe.json"), JSON.stringify(recipe));
  const target = scratch();
  await unpackRecipe(await pack(user, scratch()), target);
  const unpacked = await readRecipe(target);
  assert.equal(unpacked.digest, (await readRecipe(user)).digest);
  assert.deepEqual(unpacked.spec.files_of, []);
  assert.deepEqual((await readdir(target)).sort(), ["files_of", "own", "recipe.json"]);
  assert.equal(await readFile(join(target, "files_of/0/app/main.py"), "utf8"), "print(1)\n");
});
