/** Unpacks layers made in a test. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { mkdir } from "node:fs/promises";
import type { TestContext } from "node:test";
import { runProgram } from "@forkd/base";
import { sha256, tarOf, temporaryDirectory, type TarMember } from "@forkd/test-support";
import { unpackLayers, type Unpacked } from "../../src/oci/unpack.ts";

const mib = 2 ** 20;

/** The tree of an image whose layers are these members. */
export async function unpackMembers(
  t: TestContext,
  layers: readonly (readonly TarMember[])[],
  options: { directories?: readonly string[]; maxBytes?: number } = {},
): Promise<Unpacked & { tree: string }> {
  return await unpackTars(
    t,
    layers.map((members) => tarOf(members)),
    options,
  );
}

export async function unpackTars(
  t: TestContext,
  tars: readonly Buffer[],
  { directories = [], maxBytes = 64 * mib }: { directories?: readonly string[]; maxBytes?: number } = {},
): Promise<Unpacked & { tree: string }> {
  const dir = await temporaryDirectory(t);
  const layers = [];
  for (const [index, tar] of tars.entries()) {
    const path = join(dir, `layer-${index}`);
    await writeFile(path, tar);
    layers.push({ path, offset: 0, size: tar.length, diffId: sha256(tar) });
  }
  const tree = join(dir, "tree");
  await mkdir(tree);
  return { tree, ...(await unpackLayers({ layers, tree, maxBytes, directories })) };
}

/** `type mode uid:gid path [-> target]` of everything below a directory, sorted. */
export async function listTree(tree: string): Promise<string[]> {
  const format = "%y %m %U:%G /%P -> %l\\n";
  const { stdout } = await runProgram("find", [tree, "-mindepth", "1", "-printf", format]);
  return stdout
    .trim()
    .split("\n")
    .map((line) => line.replace(/ -> $/, ""))
    .sort((a, b) => (pathOf(a) < pathOf(b) ? -1 : 1));
}

function pathOf(line: string): string {
  return line.slice(line.indexOf(" /"));
}

export async function contentOf(tree: string, path: string): Promise<string> {
  return await readFile(join(tree, path), "utf8");
}
