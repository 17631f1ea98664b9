/**
 * Builds the snapshots that the VM tests share: `python`, `node` and `code-interpreter` from the bundled
 * recipes, `small` from a recipe that boots and moves fast, `tiny` from a root file system without Python, bash or
 * any shared library. Builds them again only when their inputs change.
 */
import { createHash } from "node:crypto";
import { copyFile, mkdir, mkdtemp, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullLogger, readJson, removeTree, runProgram } from "@forkd/base";
import { createSnapshot, defaultRuntimeConfig, openRuntime, type Runtime } from "@forkd/runtime";
import { guestDir, repository, sharedData, smallRecipe, testPrefix } from "./support/places.ts";

const stampPath = join(sharedData, "stamp.json");

/** Digest of everything that the snapshots depend on. */
async function stamp(): Promise<string> {
  const hash = createHash("sha256");
  const files = [join(guestDir, "build/forkd-agent"), join(guestDir, "build/reseed.node")];
  for (const dir of [
    "guest/kernels/python",
    "guest/kernels/node",
    "recipes/python-numpy",
    "recipes/nodejs",
    "recipes/code-interpreter",
    "tests/fixtures/small",
    "packages/runtime/dist/src/launch",
    "packages/runtime/dist/src/provenance",
    "packages/machine/dist/src/engine/qemu",
  ]) {
    for (const name of (await readdir(join(repository, dir))).sort()) {
      if (/\.(py|cjs|json|js|sh)$/.test(name) && !name.startsWith("demo."))
        files.push(join(repository, dir, name));
    }
  }
  for (const file of files) hash.update(await readFile(file));
  hash.update((await runProgram("qemu-system-x86_64", ["--version"])).stdout);
  return hash.digest("hex");
}

/** A root file system with one static program, Debian's busybox. */
async function tinyRootfs(dir: string): Promise<string> {
  const root = join(dir, "tiny");
  await mkdir(join(root, "bin"), { recursive: true });
  await mkdir(join(root, "etc"));
  await mkdir(join(root, "root"));
  await runProgram("apt-get", ["-o", "APT::Sandbox::User=root", "download", "-qq", "busybox-static"], {
    cwd: dir,
  });
  const archive = (await readdir(dir)).find((name) => name.endsWith(".deb"));
  await runProgram("dpkg-deb", ["-x", join(dir, archive ?? ""), join(dir, "busybox")]);
  const busybox = (await readdir(join(dir, "busybox"))).includes("bin") ? "bin/busybox" : "usr/bin/busybox";
  await copyFile(join(dir, "busybox", busybox), join(root, "bin/busybox"));
  for (const name of [
    "sh",
    "cat",
    "echo",
    "sleep",
    "ls",
    "id",
    "env",
    "dd",
    "true",
    "false",
    "kill",
    "stty",
    "nc",
    "head",
    "seq",
    "printf",
    "pwd",
    "tr",
    "touch",
    "sync",
    "date",
    "hostname",
    "ps",
    "yes",
    "mkdir",
    "wc",
    "sha256sum",
    "test",
    "rm",
    "dmesg",
  ]) {
    await runProgram("ln", ["-s", "busybox", join(root, "bin", name)]);
  }
  await writeFile(
    join(root, "etc/passwd"),
    "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
  );
  await writeFile(join(root, "etc/group"), "root:x:0:\nuser:x:1000:\n");
  return root;
}

async function make(runtime: Runtime, tag: string, request: object): Promise<void> {
  const started = Date.now();
  await createSnapshot(
    runtime,
    { tag, force: true, ...request },
    { log: nullLogger(), onProgress: (step, message) => console.error(`    ${tag}: ${step}: ${message}`) },
  );
  console.error(`    ${tag}: ready after ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

const wanted = await stamp();
if (JSON.stringify(await readJson(stampPath)) === JSON.stringify({ stamp: wanted })) {
  console.error("    the shared snapshots are up to date");
} else {
  const dir = await mkdtemp(testPrefix);
  try {
    const config = {
      ...defaultRuntimeConfig(),
      dataDir: sharedData,
      runtimeDir: join(dir, "run"),
      guestDir,
      poolMemoryPercent: 0,
      forkParallelism: 2,
      branchConcurrency: 8,
      memoryCacheMib: 1024,
      blobCacheMib: 1024,
    };
    await using runtime = await openRuntime(config, nullLogger());
    await make(runtime, "tiny", { rootfs: await tinyRootfs(dir), memory_mib: 96, disk_mib: 64 });
    await make(runtime, "python", { recipe: join(repository, "recipes/python-numpy") });
    await make(runtime, "small", { recipe: smallRecipe });
    await make(runtime, "node", { recipe: join(repository, "recipes/nodejs") });
    await make(runtime, "code-interpreter", { recipe: join(repository, "recipes/code-interpreter") });
    await writeFile(stampPath, JSON.stringify({ stamp: wanted }));
  } finally {
    await removeTree(dir);
  }
}
