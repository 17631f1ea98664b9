/** The root file system of the smallest guest: the static busybox of Debian and nothing else. */
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { command } from "./deadline.ts";

const programs = ["sh", "cat", "echo", "true", "sleep", "yes", "head", "seq", "dd"];

/** Calls `use` with the directory of the root file system, which is removed afterwards. */
export async function withTinyRoot(use: (root: string) => Promise<unknown>): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-bench-tiny-"));
  try {
    const root = join(dir, "root");
    for (const name of ["bin", "etc", "root"]) await mkdir(join(root, name), { recursive: true });
    const options = ["-o", "APT::Sandbox::User=root", "download", "-qq", "busybox-static"];
    await command("apt-get", options, { cwd: dir });
    const archive = (await readdir(dir)).find((name) => name.endsWith(".deb")) ?? "";
    await command("dpkg-deb", ["-x", join(dir, archive), join(dir, "busybox")]);
    const place = (await readdir(join(dir, "busybox"))).includes("bin") ? "bin/busybox" : "usr/bin/busybox";
    await copyFile(join(dir, "busybox", place), join(root, "bin/busybox"));
    for (const name of programs) await symlink("busybox", join(root, "bin", name));
    await writeFile(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
    await use(root);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
