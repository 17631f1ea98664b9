/** The smallest guest: one static program of Debian, so that what is measured is the daemon and not the guest. */
import { copyFile, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runProgram } from "@forkd/base";
import type { Forkd } from "@forkd/sdk";

const programs = ["sh", "cat", "echo", "true", "sleep", "yes", "head", "seq", "dd"];

export async function buildTiny(forkd: Forkd): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-bench-tiny-"));
  try {
    const root = join(dir, "root");
    for (const name of ["bin", "etc", "root"]) await mkdir(join(root, name), { recursive: true });
    const options = ["-o", "APT::Sandbox::User=root", "download", "-qq", "busybox-static"];
    await runProgram("apt-get", options, { cwd: dir });
    const archive = (await readdir(dir)).find((name) => name.endsWith(".deb")) ?? "";
    await runProgram("dpkg-deb", ["-x", join(dir, archive), join(dir, "busybox")]);
    const place = (await readdir(join(dir, "busybox"))).includes("bin") ? "bin/busybox" : "usr/bin/busybox";
    await copyFile(join(dir, "busybox", place), join(root, "bin/busybox"));
    for (const name of programs) await symlink("busybox", join(root, "bin", name));
    await writeFile(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
    await forkd.snapshots.build({ tag: "tiny", rootfs: root, memory_mib: 96, disk_mib: 64 });
    return "tiny";
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
