import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { temporaryDirectory } from "@forkd/test-support";
import { AptProgress } from "../../src/rootfs/apt-progress.ts";
import { archiveName, offerArchives } from "../../src/rootfs/offer-archives.ts";
import { limitPackageCache, openPackageCache, packageCacheOptions } from "../../src/rootfs/package-cache.ts";
import { namesIn } from "../support.ts";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

function stanza(name: string, version: string, content: string, digest = sha256(content)): string {
  return [
    `Package: ${name}`,
    `Version: ${version}`,
    "Architecture: amd64",
    "Description: a package",
    `Size: ${content.length}`,
    `SHA256: ${digest}`,
    "",
    "",
  ].join("\n");
}

/** A cache with these files, and a tree whose index is `index`. */
async function make(
  dir: string,
  files: Record<string, string>,
  index: string,
): Promise<{ cache: string; tree: string; archives: string }> {
  const cache = await openPackageCache(join(dir, "images"), { suite: "bookworm", mirrors: ["deb http://d"] });
  for (const [name, content] of Object.entries(files)) await writeFile(join(cache, name), content);
  const tree = join(dir, "tree");
  await mkdir(join(tree, "var/lib/apt/lists"), { recursive: true });
  await writeFile(join(tree, "var/lib/apt/lists/d_dists_bookworm_main_binary-amd64_Packages"), index);
  return { cache, tree, archives: join(tree, "var/cache/apt/archives") };
}

test("archiveName() is the name that apt gives to a package file", () => {
  assert.equal(archiveName("vim", "2:9.0.1378-2+deb12u2", "amd64"), "vim_2%3a9.0.1378-2+deb12u2_amd64.deb");
  assert.equal(archiveName("libc6", "2.36-9", "all"), "libc6_2.36-9_all.deb");
});

test("offerArchives() offers only files whose digest is in the index, and removes the others", async (t) => {
  const dir = await temporaryDirectory(t);
  const { cache, tree, archives } = await make(
    dir,
    {
      "good_1%3a1_amd64.deb": "good content",
      "changed_1_amd64.deb": "evil content",
      "superseded_1_amd64.deb": "old content",
    },
    stanza("good", "1:1", "good content") +
      stanza("changed", "1", "fine content") +
      stanza("superseded", "2", "new content") +
      stanza("other", "1", "x"),
  );
  assert.equal(await offerArchives(cache, tree), 1);
  assert.deepEqual(await readdir(archives), ["good_1%3a1_amd64.deb"]);
  assert.deepEqual(await readdir(cache), ["good_1%3a1_amd64.deb"]);
});

test("offerArchives() leaves the cache alone where it finds no index", async (t) => {
  const dir = await temporaryDirectory(t);
  const cache = await openPackageCache(dir, { suite: "sid", mirrors: [] });
  await writeFile(join(cache, "a_1_amd64.deb"), "a");
  await mkdir(join(dir, "tree/var/lib/apt/lists"), { recursive: true });
  assert.equal(await offerArchives(cache, join(dir, "tree")), 0);
  assert.deepEqual(await readdir(cache), ["a_1_amd64.deb"]);
});

test("the commands of packageCacheOptions() offer and keep package files", async (t) => {
  const dir = join(await temporaryDirectory(t), "a directory");
  const { cache, tree, archives } = await make(
    dir,
    { "a_1_amd64.deb": "content" },
    stanza("a", "1", "content"),
  );
  const { settings, args } = packageCacheOptions(cache, tree);
  const command = /"(.*)"/.exec(settings)?.[1] ?? "";
  assert.equal((await runProgram("/bin/sh", ["-c", command])).stdout, "forkd: 1 packages from the cache\n");
  await writeFile(join(archives, "b_1_amd64.deb"), "downloaded");
  const hook =
    args.find((arg) => arg.startsWith("--customize-hook="))?.slice("--customize-hook=".length) ?? "";
  await runProgram("/bin/sh", ["-c", hook, "exec", tree]);
  assert.deepEqual((await readdir(cache)).sort(), ["a_1_amd64.deb", "b_1_amd64.deb"]);
  assert.equal(await readFile(join(cache, "b_1_amd64.deb"), "utf8"), "downloaded");
  assert.equal((await stat(cache)).mode & 0o777, 0o700);
  assert.deepEqual(
    packageCacheOptions("/it's", tree),
    { settings: "", args: [] },
    "apt's settings cannot quote this path, so the build does without the cache",
  );
});

test("openPackageCache() has one directory per suite and mirrors", async (t) => {
  const dir = await temporaryDirectory(t);
  const open = (suite: string, ...mirrors: string[]) => openPackageCache(dir, { suite, mirrors });
  const first = await open("bookworm", "a", "b");
  assert.equal(await open("bookworm", "b", "a"), first);
  assert.notEqual(await open("bookworm", "a"), first);
  assert.notEqual(await open("sid", "a", "b"), first);
});

test("limitPackageCache() removes the files that were not used for the longest time", async (t) => {
  const dir = await temporaryDirectory(t);
  const cache = await openPackageCache(dir, { suite: "bookworm", mirrors: [] });
  for (const [name, day] of [
    ["new.deb", 3],
    ["old.deb", 1],
    ["middle.deb", 2],
  ] as const) {
    await writeFile(join(cache, name), Buffer.alloc(8192, 1));
    await utimes(join(cache, name), day * 86_400, day * 86_400);
  }
  const bytes = (await stat(join(cache, "new.deb"))).blocks * 512;
  await limitPackageCache(dir, 3 * bytes);
  assert.equal((await readdir(cache)).length, 3);
  await limitPackageCache(dir, 2 * bytes);
  assert.deepEqual((await readdir(cache)).sort(), ["middle.deb", "new.deb"]);
  await limitPackageCache(dir, 0);
  assert.deepEqual((await namesIn(join(dir, "packages"))).length, 1);
});

test("AptProgress turns the lines of apt and dpkg into counts", () => {
  const progress = new AptProgress();
  const read = (line: string): string | undefined => {
    const next = progress.read(line);
    return next && `${next.step}: ${next.message}`;
  };
  assert.equal(read("I: running apt-get update..."), "update: running apt-get update...");
  assert.equal(
    read("Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]"),
    "update: read 1 parts of the package index (0.2 MB)",
  );
  assert.equal(read("forkd: 60 packages from the cache"), undefined);
  assert.equal(read("I: downloading packages with apt..."), "download: downloading packages with apt...");
  assert.equal(
    read("Get:1 http://deb.debian.org/debian bookworm/main amd64 libc6 amd64 2.36 [2757 kB]"),
    "download: downloaded 1 packages (2.8 MB, 60 in the cache)",
  );
  assert.equal(read("Reading package lists..."), undefined);
  assert.equal(
    read("I: installing remaining packages inside the chroot..."),
    "install: installing remaining packages inside the chroot...",
  );
  assert.equal(read("0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."), undefined);
  assert.match(read("Unpacking python3 (3.11.2-1+b1) ...") ?? "", /^install: unpacked 1, set up 0 packages/);
  assert.match(read("Setting up python3 (3.11.2-1+b1) ...") ?? "", /^install: unpacked 1, set up 1 packages/);
});
