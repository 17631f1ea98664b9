import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  copyFile,
  mkdir,
  open,
  readdir,
  readFile,
  stat,
  symlink,
  truncate,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { importRootfs } from "../../src/rootfs/user-rootfs.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { namesIn } from "../support.ts";

async function makeTree(path: string): Promise<string> {
  await mkdir(join(path, "etc"), { recursive: true });
  await writeFile(join(path, "etc", "motd"), "welcome\n", { mode: 0o640 });
  await symlink("etc/motd", join(path, "link"));
  return path;
}

async function makeExt4(path: string, tree: string): Promise<string> {
  await writeFile(path, "");
  await truncate(path, 16 * 2 ** 20);
  await runProgram("/sbin/mke2fs", ["-q", "-F", "-t", "ext4", "-d", tree, path]);
  return path;
}

async function catFile(image: string, path: string): Promise<string> {
  return (await runProgram("/sbin/debugfs", ["-R", `cat ${path}`, image])).stdout;
}

async function hash(path: string): Promise<string> {
  return createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
}

test("importRootfs() creates a disk from a directory", async (t) => {
  const dir = await temporaryDirectory(t);
  const tree = await makeTree(join(dir, "tree"));
  const images = join(dir, "images");
  const made = await importRootfs(images, tree, { diskMib: 64 });
  assert.equal((await stat(made.path)).size, 64 * 2 ** 20);
  assert.ok(made.allocatedBytes < 32 * 2 ** 20);
  assert.equal(await catFile(made.path, "/etc/motd"), "welcome\n");
  assert.match(
    (await runProgram("/sbin/debugfs", ["-R", "stat /link", made.path])).stdout,
    /link dest: "etc\/motd"/,
  );
  const listing = await runProgram("/sbin/debugfs", ["-R", "stat /etc/motd", made.path]);
  assert.match(listing.stdout, /Mode:\s+0640/);

  const steps: string[] = [];
  const again = await importRootfs(images, tree, { diskMib: 64 }, { onProgress: (step) => steps.push(step) });
  assert.deepEqual(again, made);
  assert.deepEqual(steps, ["read"]);
  assert.notEqual((await importRootfs(images, tree, { diskMib: 65 })).digest, made.digest);
  await writeFile(join(tree, "etc", "motd"), "changed\n");
  assert.notEqual((await importRootfs(images, tree, { diskMib: 64 })).digest, made.digest);
  assert.ok((await readdir(join(images, "rootfs"))).every((name) => !name.startsWith(".tmp")));
});

for (const [name, flag] of [
  ["tar", "--no-auto-compress"],
  ["tar.gz", "-z"],
  ["tar.xz", "-J"],
  ["tar.zst", "--zstd"],
] as const) {
  test(`importRootfs() creates a disk from a ${name} with any file name`, async (t) => {
    const dir = await temporaryDirectory(t);
    const tree = await makeTree(join(dir, "tree"));
    const archive = join(dir, "archive");
    await runProgram("tar", ["-c", flag, "--owner=1234", "--group=5", "-f", archive, "-C", tree, "."]);
    const made = await importRootfs(join(dir, "images"), archive, { diskMib: 64 });
    assert.equal(await catFile(made.path, "/etc/motd"), "welcome\n");
    assert.match(
      (await runProgram("/sbin/debugfs", ["-R", "stat /link", made.path])).stdout,
      /link dest: "etc\/motd"/,
    );
    const listing = await runProgram("/sbin/debugfs", ["-R", "stat /etc/motd", made.path]);
    assert.match(listing.stdout, /User:\s+1234\s+Group:\s+5\b/);
    assert.deepEqual((await readdir(join(made.path, ".."))).sort(), ["info.json", "rootfs.ext4"]);
  });
}

test("importRootfs() copies an ext4 image, grows it on request, and does not change the original", async (t) => {
  const dir = await temporaryDirectory(t);
  const image = await makeExt4(join(dir, "disk"), await makeTree(join(dir, "tree")));
  const before = await hash(image);
  const same = await importRootfs(join(dir, "images"), image);
  assert.equal(same.diskMib, 16);
  const grown = await importRootfs(join(dir, "images"), image, { diskMib: 48 });
  assert.equal((await stat(grown.path)).size, 48 * 2 ** 20);
  for (const { path } of [same, grown]) {
    assert.equal(await catFile(path, "/etc/motd"), "welcome\n");
    await runProgram("/sbin/e2fsck", ["-f", "-n", path]);
  }
  assert.equal(await hash(image), before);
});

test("importRootfs() replays the journal of an image that was not unmounted", async (t) => {
  const dir = await temporaryDirectory(t);
  const image = await makeExt4(join(dir, "disk"), await makeTree(join(dir, "tree")));
  await runProgram("/sbin/debugfs", ["-w", "-R", "feature needs_recovery", image]);
  const made = await importRootfs(join(dir, "images"), image);
  const features = async (path: string): Promise<string> =>
    (await runProgram("/sbin/dumpe2fs", ["-h", path])).stdout;
  assert.match(await features(image), /needs_recovery/);
  assert.doesNotMatch(await features(made.path), /needs_recovery/);
});

test("importRootfs() refuses an image that is truncated or beyond repair", async (t) => {
  const dir = await temporaryDirectory(t);
  const image = await makeExt4(join(dir, "disk"), await makeTree(join(dir, "tree")));
  await copyFile(image, join(dir, "short"));
  await truncate(join(dir, "short"), 8 * 2 ** 20);
  await rejectsWith(importRootfs(join(dir, "images"), join(dir, "short")), "invalid_image", /truncated/);
  const handle = await open(image, "r+");
  // The group descriptors and the inode table.
  await handle.write(Buffer.alloc(512 * 1024, 0xa5), 0, 512 * 1024, 2048);
  await handle.close();
  await rejectsWith(importRootfs(join(dir, "images"), image), "invalid_image", /damaged/);
  assert.deepEqual(await namesIn(join(dir, "images", "rootfs")), []);
});

const at = (offset: number, text: string): Buffer => {
  const buffer = Buffer.alloc(70_000);
  buffer.write(text, offset, "latin1");
  return buffer;
};

const wrong: [string, Buffer, RegExp][] = [
  ["nothing", Buffer.alloc(0), /an empty file/],
  ["qcow2", at(0, "QFI\xfb"), /looks like a qcow2 disk/],
  ["ISO", at(32_769, "CD001"), /looks like an ISO image/],
  ["ELF", at(0, "\x7fELF"), /looks like an ELF program/],
  ["squashfs", at(0, "hsqs"), /looks like a squashfs image/],
  ["partitions", at(510, "\x55\xaa"), /looks like a disk with a partition table/],
  ["kernel", at(0x202, "HdrS"), /looks like a Linux kernel/],
  ["zip", at(0, "PK\x03\x04"), /looks like a zip archive/],
  ["text", Buffer.from("hello"), /a file of an unknown kind/],
  [
    "gzip of something else",
    Buffer.from("1f8b08000000000000034bcc4a0700dfd5b0c403000000", "hex"),
    /cannot be unpacked/,
  ],
];

for (const [name, content, message] of wrong) {
  test(`importRootfs() reports the kind of a file it cannot use: ${name}`, async (t) => {
    const dir = await temporaryDirectory(t);
    await writeFile(join(dir, "file"), content);
    await rejectsWith(importRootfs(join(dir, "images"), join(dir, "file")), "invalid_image", message);
    assert.deepEqual(await namesIn(join(dir, "images", "rootfs")), []);
  });
}

test("importRootfs() refuses a missing file, a device, and a container image with layers", async (t) => {
  const dir = await temporaryDirectory(t);
  const images = join(dir, "images");
  await rejectsWith(importRootfs(images, join(dir, "none")), "invalid_image", /no such file/);
  await rejectsWith(importRootfs(images, "/dev/null"), "invalid_image", /neither a file nor a directory/);
  await mkdir(join(dir, "layers"));
  await writeFile(join(dir, "layers", "manifest.json"), "[]");
  await runProgram("tar", ["-cf", join(dir, "saved.tar"), "-C", join(dir, "layers"), "manifest.json"]);
  await rejectsWith(
    importRootfs(images, join(dir, "saved.tar")),
    "invalid_image",
    /container image with layers/,
  );
});

test("importRootfs() reports a sufficient size when the disk is too small", async (t) => {
  const dir = await temporaryDirectory(t);
  const tree = await makeTree(join(dir, "tree"));
  await writeFile(join(tree, "big"), Buffer.alloc(80 * 2 ** 20, 1));
  await assert.rejects(importRootfs(join(dir, "images"), tree, { diskMib: 64 }), (error) => {
    assert.ok(error instanceof AppError);
    assert.equal(error.code, "invalid_image");
    assert.match(error.message, /^Cannot fit \d+ MiB of files on a disk of 64 MiB$/);
    assert.equal(error.remedy?.action, "advice");
    assert.match(error.remedy.text, /^Raise disk_mib to \d+ or more\.$/);
    return true;
  });
  assert.deepEqual(await namesIn(join(dir, "images", "rootfs")), []);
});

test("importRootfs() leaves nothing behind when it is cancelled at any step", async (t) => {
  const dir = await temporaryDirectory(t);
  const tree = await makeTree(join(dir, "tree"));
  await runProgram("tar", ["-cf", join(dir, "a.tar"), "-C", tree, "."]);
  const image = await makeExt4(join(dir, "disk"), tree);
  const cases: [string, string][] = [
    [tree, "read"],
    [tree, "image"],
    [join(dir, "a.tar"), "unpack"],
    [join(dir, "a.tar"), "image"],
    [image, "copy"],
    [image, "check"],
  ];
  for (const [source, last] of cases) {
    const controller = new AbortController();
    const onProgress = (step: string): void => {
      if (step === last) controller.abort();
    };
    const work = importRootfs(
      join(dir, "images"),
      source,
      { diskMib: 64 },
      { signal: controller.signal, onProgress },
    );
    await rejectsWith(work, "cancelled", /cancelled/);
    assert.deepEqual(await namesIn(join(dir, "images", "rootfs")), [], `${source} ${last}`);
  }
});

test(
  "importRootfs() leaves nothing on a full disk",
  { skip: process.getuid?.() !== 0 && "needs root" },
  async (t) => {
    const dir = await temporaryDirectory(t);
    const images = join(dir, "images");
    await mkdir(images);
    const tree = await makeTree(join(dir, "tree"));
    await writeFile(join(tree, "big"), Buffer.alloc(24 * 2 ** 20, 1));
    await runProgram("tar", ["-c", "-z", "-f", join(dir, "a.tgz"), "-C", tree, "."]);
    await runProgram("mount", ["-t", "tmpfs", "-o", "size=12m", "forkd-test", images]);
    try {
      await rejectsWith(
        importRootfs(images, tree, { diskMib: 64 }),
        "disk_full",
        /MiB are needed and 12 MiB are free/,
      );
      // Small as an archive, too large unpacked: the disk fills up during the import.
      await rejectsWith(
        importRootfs(images, join(dir, "a.tgz"), { diskMib: 64 }),
        "disk_full",
        /no space is left/,
      );
      assert.deepEqual(await namesIn(join(images, "rootfs")), []);
    } finally {
      await runProgram("umount", [images]);
    }
  },
);
