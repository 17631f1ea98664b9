import assert from "node:assert/strict";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { ensureInitramfs } from "../../src/kernel/initramfs.ts";
import { loadOrder, parseModulesDep } from "../../src/kernel/modules.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { namesIn } from "../support.ts";

const names = [
  "virtio_ring",
  "virtio",
  "virtio_mmio",
  "virtio_blk",
  "virtio_console",
  "virtio-rng",
  "overlay",
];

async function makeModules(dir: string, without: readonly string[] = [], builtin = ""): Promise<string> {
  await mkdir(join(dir, "kernel"), { recursive: true });
  const paths = names.filter((name) => !without.includes(name)).map((name) => `kernel/${name}.ko`);
  for (const path of paths) await writeFile(join(dir, path), `module ${path}`);
  const needs = (path: string): string =>
    path.includes("ring") ? " kernel/virtio.ko" : path.endsWith("virtio.ko") ? "" : " kernel/virtio_ring.ko";
  await writeFile(join(dir, "modules.dep"), paths.map((path) => `${path}:${needs(path)}\n`).join(""));
  await writeFile(join(dir, "modules.builtin"), builtin);
  return dir;
}

async function makeAgent(path: string, content = "agent"): Promise<string> {
  await writeFile(path, Buffer.concat([Buffer.from("\x7fELF"), Buffer.alloc(60), Buffer.from(content)]));
  return path;
}

test("loadOrder() puts dependencies first, each once, and accepts a cycle", () => {
  const dep = parseModulesDep("k/a.ko: k/c.ko k/b.ko\nk/b.ko: k/c.ko\nk/c.ko: k/a.ko\nk/x-y.ko:\n");
  assert.deepEqual(loadOrder(["a", "x_y", "z"], dep, "k/z.ko\n"), {
    paths: ["k/c.ko", "k/b.ko", "k/a.ko", "k/x-y.ko"],
    missing: [],
  });
  assert.deepEqual(loadOrder(["q"], dep, ""), { paths: [], missing: ["q"] });
});

test("ensureInitramfs() packs the agent and the modules in load order", async (t) => {
  const dir = await temporaryDirectory(t);
  const agentPath = await makeAgent(join(dir, "agent"));
  const modulesDir = await makeModules(join(dir, "modules"));
  const images = join(dir, "images");
  const made = await ensureInitramfs(images, { agentPath, modulesDir });
  const load = [
    "virtio",
    "virtio_ring",
    "virtio_mmio",
    "virtio_blk",
    "virtio_console",
    "virtio-rng",
    "overlay",
  ];
  assert.deepEqual(
    made.modules,
    load.map((name) => `${name}.ko`),
  );
  const { stdout } = await runProgram("cpio", ["-t", "--quiet", "-F", made.path]);
  const wanted = ["dev", "dev/console", "init", "modules", "newroot", "proc", "run", "sys", "modules/load"];
  assert.deepEqual(
    stdout.trim().split("\n").sort(),
    [...wanted, ...made.modules.map((m) => `modules/${m}`)].sort(),
  );

  const before = await stat(made.path);
  assert.deepEqual(await ensureInitramfs(images, { agentPath, modulesDir }), made);
  assert.equal((await stat(made.path)).ino, before.ino);
  const elsewhere = await ensureInitramfs(join(dir, "images2"), { agentPath, modulesDir });
  assert.deepEqual(await readFile(elsewhere.path), await readFile(made.path));
});

test("ensureInitramfs() creates another archive when the agent or a module changes", async (t) => {
  const dir = await temporaryDirectory(t);
  const images = join(dir, "images");
  const modulesDir = await makeModules(join(dir, "modules"));
  const one = await ensureInitramfs(images, { agentPath: await makeAgent(join(dir, "a")), modulesDir });
  const two = await ensureInitramfs(images, {
    agentPath: await makeAgent(join(dir, "a"), "other"),
    modulesDir,
  });
  await writeFile(join(modulesDir, "kernel", "overlay.ko"), "other");
  const three = await ensureInitramfs(images, { agentPath: join(dir, "a"), modulesDir });
  assert.equal(new Set([one.path, two.path, three.path]).size, 3);
});

test("ensureInitramfs() packs other files, and another archive for other content", async (t) => {
  const dir = await temporaryDirectory(t);
  const images = join(dir, "images");
  const input = { agentPath: await makeAgent(join(dir, "agent")), modulesDir: null };
  const plain = await ensureInitramfs(images, input);
  const one = await ensureInitramfs(images, input, { caBundle: Buffer.from("one") });
  const two = await ensureInitramfs(images, input, { caBundle: Buffer.from("two") });
  assert.equal(new Set([plain.path, one.path, two.path]).size, 3);
  assert.equal(new Set([plain.digest, one.digest, two.digest]).size, 3);
  const again = await ensureInitramfs(images, input, { caBundle: new Uint8Array(Buffer.from("one")) });
  assert.deepEqual(again, one);

  const files = [{ name: "extra", content: Buffer.from("e") }];
  const both = await ensureInitramfs(images, { ...input, files }, { caBundle: Buffer.from("one") });
  const unpacked = join(dir, "unpacked");
  await mkdir(unpacked);
  await runProgram("cpio", ["-id", "--quiet", "--no-preserve-owner", "-F", both.path, "*.pem", "extra"], {
    cwd: unpacked,
  });
  assert.equal(await readFile(join(unpacked, "ca-bundle.pem"), "utf8"), "one");
  assert.equal(await readFile(join(unpacked, "extra"), "utf8"), "e");
});

test("ensureInitramfs() requires the modules that a guest needs to boot, unless they are built in", async (t) => {
  const dir = await temporaryDirectory(t);
  const images = join(dir, "images");
  const agentPath = await makeAgent(join(dir, "agent"));
  const lacking = await makeModules(join(dir, "lacking"), ["virtio_blk"]);
  await rejectsWith(
    ensureInitramfs(images, { agentPath, modulesDir: lacking }),
    "invalid_image",
    /lacks virtio_blk/,
  );
  assert.deepEqual(await namesIn(images), []);
  const builtin = await makeModules(
    join(dir, "builtin"),
    ["virtio_blk"],
    "kernel/drivers/block/virtio_blk.ko\n",
  );
  const made = await ensureInitramfs(images, { agentPath, modulesDir: builtin });
  assert.ok(!made.modules.includes("virtio_blk.ko"));
  assert.deepEqual((await ensureInitramfs(images, { agentPath, modulesDir: null })).modules, []);
});

test("ensureInitramfs() reports how to build the agent", async (t) => {
  const dir = await temporaryDirectory(t);
  const input = { agentPath: join(dir, "none"), modulesDir: null };
  await assert.rejects(ensureInitramfs(dir, input), {
    name: "ForkdError",
    code: "host_not_ready",
    message: `Cannot find the guest agent at "${input.agentPath}"`,
    remedy: { action: "advice", text: "Build it with `make -C guest`." },
  });
});
