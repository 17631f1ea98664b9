/** Container images for tests, made from what the shared snapshots have. */
import { chmod, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runProgram } from "@forkd/base";
import { sharedData } from "./places.ts";

const applets = ["sh", "cat", "echo", "env", "id", "ls", "pwd", "httpd", "wget", "sleep", "touch"];

/** The bytes of a tar of a directory, everything in it owned by root. */
export async function tarTree(tree: string): Promise<Buffer> {
  const path = `${tree}.tar`;
  await runProgram("tar", ["--numeric-owner", "--owner=0", "--group=0", "-C", tree, "-cf", path, "."]);
  return await readFile(path);
}

/** A directory with busybox, a static program, and links to it. */
export async function busyboxTree(tree: string): Promise<string> {
  await mkdir(join(tree, "bin"), { recursive: true });
  const image = join(sharedData, "snapshots/tiny/rootfs.ext4");
  const program = join(tree, "bin/busybox");
  await runProgram("/sbin/debugfs", ["-R", `dump /bin/busybox ${program}`, image]);
  await chmod(program, 0o755);
  for (const name of applets) await symlink("busybox", join(tree, "bin", name));
  return tree;
}

/** A program without any library, and one that needs musl's. The directory has nothing else, not even /etc. */
export async function bareTree(tree: string): Promise<string> {
  await mkdir(join(tree, "lib"), { recursive: true });
  const source = `${tree}.c`;
  await writeFile(
    source,
    '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("%s %d\\n", NAME, getuid()); return 0; }\n',
  );
  const define = (name: string) => `-DNAME="${name}"`;
  await runProgram("gcc", ["-static", define("static"), "-o", join(tree, "static"), source]);
  await runProgram("musl-gcc", [define("musl"), "-o", join(tree, "dynamic"), source]);
  // One file is both the C library and its loader.
  await runProgram("cp", ["-L", "/lib/ld-musl-x86_64.so.1", join(tree, "lib/ld-musl-x86_64.so.1")]);
  return tree;
}

/** The tree of Debian with Python that the shared snapshot has. */
export async function pythonTree(tree: string): Promise<string> {
  await mkdir(tree);
  const image = join(sharedData, "snapshots/python/rootfs.ext4");
  await runProgram("/sbin/debugfs", ["-R", `rdump / ${tree}`, image]);
  return tree;
}
