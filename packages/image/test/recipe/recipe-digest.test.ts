import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { canonicalJson } from "../../src/files/digest.ts";
import { readRecipe, type Recipe } from "../../src/recipe/recipe.ts";
import { temporaryDirectory } from "@forkd/test-support";

const base = {
  version: 1,
  base: { packages: ["b-pkg", "a-pkg"] },
  files: [{ from: "a.txt", to: "/a.txt", mode: "0644" }],
};

test("canonicalJson() does not depend on the order of keys", () => {
  assert.equal(canonicalJson({ b: [{ d: 1, c: 2 }], a: null }), '{"a":null,"b":[{"c":2,"d":1}]}');
});

test("the digests of a recipe change with each of their inputs and with nothing else", async (t) => {
  const read = async (recipe: object, content = "hello"): Promise<Recipe> => {
    const dir = await temporaryDirectory(t);
    await writeFile(join(dir, "a.txt"), content);
    await writeFile(join(dir, "recipe.json"), JSON.stringify(recipe));
    return readRecipe(dir);
  };
  const first = await read(base);
  const same = await read({ ...base, base: { packages: ["a-pkg", "b-pkg", "a-pkg"], suite: "bookworm" } });
  assert.equal(same.digest, first.digest);
  assert.equal((await read({ ...base, description: "words" })).digest, first.digest);

  const file = base.files[0];
  const otherRootfs = [
    await read(base, "hello!"),
    await read({ ...base, disk_mib: 1024 }),
    await read({ ...base, base: { packages: ["a-pkg"] } }),
    await read({ ...base, base: { ...base.base, suite: "trixie" } }),
    await read({ ...base, files: [{ ...file, to: "/b.txt" }] }),
    await read({ ...base, files: [{ ...file, mode: "0600" }] }),
  ];
  const otherSnapshot = [
    await read({ ...base, require: ["entropy"] }),
    await read({ ...base, run: [["true"]] }),
    await read({ ...base, env: { A: "b" } }),
    await read({ ...base, memory_mib: 256 }),
    await read({ ...base, vcpus: 2 }),
    await read({ ...base, languages: { python: { warmup: "import os" } } }),
    await read({ ...base, services: [{ argv: ["x"] }] }),
    await read({ ...base, network: { mode: "open" } }),
    await read({ ...base, network: { rules: ["allow pypi.org:443"] } }),
  ];
  for (const each of otherSnapshot) assert.equal(each.rootfsDigest, first.rootfsDigest);
  const rootfs = new Set([first, ...otherRootfs].map((each) => each.rootfsDigest));
  assert.equal(rootfs.size, 1 + otherRootfs.length);
  const all = new Set([first, ...otherRootfs, ...otherSnapshot].map((each) => each.digest));
  assert.equal(all.size, 1 + otherRootfs.length + otherSnapshot.length);
});
