import assert from "node:assert/strict";
import { mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { throttleLines } from "../../src/context.ts";
import { mmdebstrapArguments, parseMirrors } from "../../src/rootfs/debian.ts";
import { resolveInTree } from "../../src/rootfs/guest-path.ts";
import { findProgram, missingPrograms } from "../../src/packages.ts";
import { readRecipe } from "../../src/recipe/recipe.ts";
import { ensureRootfs } from "../../src/rootfs/rootfs.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { namesIn } from "../support.ts";

test("parseMirrors() returns only Debian's archives of the suite", () => {
  const targets = [
    "Debian bookworm main http://mirror.example/debian/",
    "Debian bookworm contrib http://mirror.example/debian/",
    "Debian bookworm-security main http://mirror.example/security/",
    "Debian trixie main http://mirror.example/debian/",
    "Other bookworm main http://other.example/",
    "",
  ].join("\n");
  assert.deepEqual(parseMirrors(targets, "bookworm"), [
    "deb http://mirror.example/debian/ bookworm main contrib",
    "deb http://mirror.example/security/ bookworm-security main",
  ]);
  assert.deepEqual(parseMirrors(targets, "sid"), []);
});

test("mmdebstrapArguments() puts the suite, the tree and the mirrors last", () => {
  const input = { suite: "sid", packages: ["a", "b"], tree: "/t", settings: "/s", mirrors: ["deb x"] };
  const args = mmdebstrapArguments(input);
  assert.deepEqual(args.slice(-4), ["--include=a,b", "sid", "/t", "deb x"]);
  assert.ok(!mmdebstrapArguments({ ...input, packages: [] }).some((each) => each.startsWith("--include")));
});

test("resolveInTree() follows links as the guest does and never leaves the tree", async (t) => {
  const root = await temporaryDirectory(t);
  await mkdir(join(root, "usr", "bin"), { recursive: true });
  await symlink("usr/bin", join(root, "bin"));
  await symlink("/etc", join(root, "absolute"));
  await symlink("../../../../etc", join(root, "usr", "up"));
  await symlink("loop", join(root, "loop"));
  assert.equal(await resolveInTree(root, "/bin/x"), join(root, "usr/bin/x"));
  assert.equal(await resolveInTree(root, "/absolute/passwd"), join(root, "etc/passwd"));
  assert.equal(await resolveInTree(root, "/usr/up/passwd"), join(root, "etc/passwd"));
  assert.equal(await resolveInTree(root, "/made/on/the/way"), join(root, "made/on/the/way"));
  await assert.rejects(resolveInTree(root, "/loop/x"), /too many links/);
});

test("throttleLines() reports one line a second", () => {
  const seen: string[] = [];
  let time = 0;
  const pass = throttleLines(
    (line) => seen.push(line),
    () => time,
  );
  for (const [at, line] of [
    [0, "a"],
    [999, "b"],
    [1000, "c"],
    [1500, "d"],
    [2100, "e"],
  ] as const) {
    time = at;
    pass(line);
  }
  assert.deepEqual(seen, ["a", "c", "e"]);
});

test("missingPrograms() names the package and the remedy", async () => {
  const programs = [
    { program: "sh", package: "dash", purpose: "" },
    { program: "forkd-no-such-program", package: "nothing", purpose: "test" },
  ];
  const missing = await missingPrograms({ programs });
  assert.deepEqual(
    missing.map(({ program, remedy }) => [program, remedy]),
    [["forkd-no-such-program", { action: "install", packages: ["nothing"] }]],
  );
  assert.equal(await findProgram("mke2fs", "/bin"), "/usr/sbin/mke2fs");
});

test("ensureRootfs() builds a recipe once, and leaves nothing behind when a build fails", async (t) => {
  const dir = await temporaryDirectory(t);
  const images = join(dir, "images");
  const recipeDir = join(dir, "recipe");
  await mkdir(recipeDir);
  await writeFile(join(recipeDir, "hello"), "#!/bin/sh\necho hello\n", { mode: 0o755 });
  const files = [{ from: "hello", to: "/bin/hello" }];
  const write = (packages: string[]): Promise<void> =>
    writeFile(
      join(recipeDir, "recipe.json"),
      JSON.stringify({ version: 1, base: { packages }, files, disk_mib: 1024 }),
    );

  await write(["forkd-no-such-package"]);
  const unknown = await readRecipe(recipeDir);
  await rejectsWith(
    ensureRootfs(images, unknown),
    "invalid_recipe",
    /base\.packages: .*forkd-no-such-package/,
  );
  await write([]);
  const recipe = await readRecipe(recipeDir);
  const controller = new AbortController();
  const onProgress = (step: string): void => {
    if (step === "unpack") controller.abort();
  };
  await rejectsWith(
    ensureRootfs(images, recipe, { signal: controller.signal, onProgress }),
    "cancelled",
    /cancelled/,
  );
  assert.deepEqual(await namesIn(join(images, "rootfs")), []);

  const [made, same] = await Promise.all([ensureRootfs(images, recipe), ensureRootfs(images, recipe)]);
  assert.deepEqual(same, made);
  assert.deepEqual((await readdir(join(images, "rootfs", made.digest))).sort(), ["info.json", "rootfs.ext4"]);
  assert.match(
    (await namesIn(join(images, "packages"))).join(" "),
    /libc6_[^ ]*\.deb/,
    "kept for later builds",
  );
  const steps: string[] = [];
  assert.deepEqual(await ensureRootfs(images, recipe, { onProgress: (step) => steps.push(step) }), made);
  assert.deepEqual(steps, []);

  assert.equal((await stat(made.path)).size, 2 ** 30);
  await runProgram("/sbin/e2fsck", ["-f", "-n", made.path]);
  const read = async (path: string): Promise<string> =>
    (await runProgram("/sbin/debugfs", ["-R", path, made.path])).stdout;
  assert.equal(await read("cat /usr/bin/hello"), await readFile(join(recipeDir, "hello"), "utf8"));
  assert.match(await read("stat /usr/bin/hello"), /Mode:\s+0755/);
  assert.equal(await read("cat /etc/hostname"), "forkd\n");
  assert.equal(await read("cat /etc/machine-id"), "");
  assert.doesNotMatch(await read("ls /var/lib/apt/lists"), /Packages/);
  assert.match(
    await read("stat /usr/share/man/man1"),
    /Type: directory/,
    "without pages, but packages link into it",
  );
  assert.doesNotMatch(await read("ls /etc/apt/apt.conf.d"), /mmdebstrap/);
});
