import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { parseKernelDependency, parsePackage } from "../../src/kernel/kernel.ts";
import { readModuleDepends } from "../../src/kernel/modules.ts";
import { importKernel } from "../../src/kernel/user-kernel.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { namesIn } from "../support.ts";

function bzImage(version: string): Buffer {
  const image = Buffer.alloc(4096);
  image.write("\x55\xaaXXHdrS", 0x1fe, "latin1");
  image.writeUInt16LE(0x300, 0x20e);
  image.write(`${version} (someone@somewhere)\0`, 0x500, "latin1");
  return image;
}

/** An ELF header with one PT_LOAD segment. */
function elf(address: bigint): Buffer {
  const image = Buffer.alloc(256);
  image.write("\x7fELF\x02\x01\x01", "latin1");
  image.writeUInt16LE(62, 18);
  image.writeBigUInt64LE(64n, 0x20);
  image.writeUInt16LE(56, 0x36);
  image.writeUInt16LE(1, 0x38);
  image.writeUInt32LE(1, 64);
  image.writeBigUInt64LE(address, 64 + 16);
  return image;
}

test("importKernel() accepts a bzImage, with its version, and a vmlinux", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "kernel");
  await writeFile(path, bzImage("6.9.1-mine"));
  const made = await importKernel(join(dir, "images"), path);
  assert.equal(made.version, "6.9.1-mine");
  assert.equal(made.modulesDir, null);
  assert.deepEqual(await readFile(made.path), await readFile(path));
  assert.deepEqual(await importKernel(join(dir, "images"), path), made);
  await writeFile(path, elf(0xffff_ffff_8100_0000n));
  assert.notEqual((await importKernel(join(dir, "images"), path)).digest, made.digest);
});

test("importKernel() reports the kind of a file that is not a kernel", async (t) => {
  const dir = await temporaryDirectory(t);
  const images = join(dir, "images");
  const path = join(dir, "file");
  await writeFile(path, elf(0x400000n));
  await rejectsWith(importKernel(images, path), "invalid_image", /an ELF program, not a kernel/);
  await rejectsWith(importKernel(images, process.execPath), "invalid_image", /an ELF program, not a kernel/);
  await writeFile(path, "\x1f\x8b1234", "latin1");
  await rejectsWith(importKernel(images, path), "invalid_image", /a gzip file$/);
  await assert.rejects(importKernel(images, path), {
    remedy: { action: "advice", text: "Use a bzImage or an ELF vmlinux." },
  });
  await rejectsWith(importKernel(images, dir), "invalid_image", /not a file/);
  await rejectsWith(importKernel(images, join(dir, "none")), "invalid_image", /no such file/);
  await writeFile(path, bzImage("1"));
  const noModules = importKernel(images, path, { modulesDir: dir });
  await rejectsWith(noModules, "invalid_image", /no modules\.builtin/);
  assert.deepEqual(await namesIn(join(images, "kernel")), []);
});

test("parseKernelDependency() and parsePackage() read the output of apt-cache", () => {
  const depends =
    "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-30-cloud-amd64\n  Recommends: firmware\n";
  assert.equal(parseKernelDependency(depends), "linux-image-6.1.0-30-cloud-amd64");
  assert.equal(parseKernelDependency("linux-image-cloud-amd64\n"), undefined);
  const show =
    "Package: linux-image-x\nSource: linux (1)\nVersion: 6.1.124-1\nSHA256: abc\nDescription: x\n Version: no\n";
  assert.deepEqual(parsePackage(show), { name: "linux-image-x", version: "6.1.124-1", sha256: "abc" });
  assert.throws(() => parsePackage("Package: x\n"), /no Version/);
});

test("readModuleDepends() refuses a file that is not a module", () => {
  assert.throws(() => readModuleDepends(Buffer.from("not an ELF file at all")), RangeError);
  assert.throws(() => readModuleDepends(elf(0n)), RangeError);
});
