/** The directories: present, private, large enough, on suitable file systems. */
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { access, chmod, copyFile, mkdir, rm, stat, statfs, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isErrno } from "@forkd/base";
import type { Remedy } from "@forkd/contract";
import { imagesDir, type RuntimeConfig } from "../config.ts";
import { ownBytes } from "../observe/usage.ts";
import { fail, inGib, ok, warn, type Finding } from "./finding.ts";

const gib = 1024 ** 3;
const wantedBytes = 5 * gib;
const wantedInodes = 10_000;

/** file system types of statfs(2) and their names */
const fileSystems: Readonly<Record<number, string>> = {
  0xef53: "ext4",
  0x58465342: "xfs",
  0x9123683e: "btrfs",
  0x01021994: "tmpfs",
  0x794c7630: "overlayfs",
  0x6969: "nfs",
  0x2fc12fc1: "zfs",
  0xff534d42: "cifs",
  0x65735546: "fuse",
};
const remote = new Set(["nfs", "cifs", "fuse"]);

export async function storageFindings(config: RuntimeConfig): Promise<Finding[]> {
  return [
    await directory("data directory", config.dataDir),
    await space(config),
    ...(await inodes(config.dataDir)),
    await dataFileSystem(config.dataDir),
    await directory("runtime directory", config.runtimeDir),
    await runtimeFileSystem(config.runtimeDir),
  ];
}

async function directory(name: string, path: string): Promise<Finding> {
  const facts = await stat(path).catch((error: unknown) => {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  });
  if (facts === undefined) {
    const parent = await nearestExisting(path);
    if (!(await isWritable(parent)))
      return fail(name, `${path} is not there, and ${parent} is not writable`, anotherPath(name));
    return {
      ...ok(name, `${path} is not there yet; the daemon makes it`),
      fix: async () => {
        await mkdir(path, { recursive: true, mode: 0o700 });
        return `made ${path} with mode 0700`;
      },
    };
  }
  if (!facts.isDirectory()) return fail(name, `${path} is not a directory`, anotherPath(name));
  const uid = process.getuid?.();
  if (uid !== undefined && facts.uid !== uid)
    return fail(
      name,
      `${path} belongs to user ${facts.uid}, not to ${uid}`,
      "Run the daemon as that user, or use another directory.",
    );
  if (!(await isWritable(path))) return fail(name, `${path} is not writable`, anotherPath(name));
  const mode = facts.mode & 0o777;
  if ((mode & 0o077) === 0) return ok(name, path);
  return {
    ...warn(
      name,
      `${path} has mode ${mode.toString(8)}: others may look into it`,
      `Run \`chmod 700 ${path}\`.`,
    ),
    fix: async () => {
      await chmod(path, 0o700);
      return `chmod 700 ${path}`;
    },
  };
}

function anotherPath(name: string): Remedy {
  const setting = name === "data directory" ? "data_dir" : "runtime_dir";
  return { action: "change_setting", setting, to: "another directory" };
}

async function space(config: RuntimeConfig): Promise<Finding> {
  const path = config.dataDir;
  const { bavail, bsize, blocks } = await statfs(await nearestExisting(path));
  const free = bavail * bsize;
  const images = await ownBytes(imagesDir(config));
  const detail = `${inGib(free)} of ${inGib(blocks * bsize)} free at ${path}; image cache ${inGib(images)}`;
  if (free >= wantedBytes) return ok("disk space", detail);
  const remedy: Remedy = { action: "free_disk", setting: "data_dir" };
  return free >= gib ? warn("disk space", detail, remedy) : fail("disk space", detail, remedy);
}

async function inodes(path: string): Promise<Finding[]> {
  const { files, ffree } = await statfs(await nearestExisting(path));
  // btrfs and others report none.
  if (files === 0) return [];
  const detail = `${ffree} of ${files} inodes free at ${path}`;
  if (ffree >= wantedInodes) return [ok("inodes", detail)];
  return [
    warn("inodes", detail, {
      action: "change_setting",
      setting: "data_dir",
      to: "a directory on another file system",
    }),
  ];
}

async function dataFileSystem(path: string): Promise<Finding> {
  const existing = await nearestExisting(path);
  const type = await typeOf(existing);
  if (remote.has(type))
    return warn(
      "file system",
      `${type} at ${existing}`,
      "Keep the data directory on a local disk: guests map files of it.",
    );
  if (type === "tmpfs")
    return warn("file system", `tmpfs at ${existing}: snapshots are in memory and gone at a reboot`, {
      action: "change_setting",
      setting: "data_dir",
      to: "a directory on a disk",
    });
  const detail = (await canReflink(existing))
    ? "copies of files share their blocks"
    : "no reflinks: copies of snapshots are written out";
  return ok("file system", `${type}; ${detail}`);
}

async function runtimeFileSystem(path: string): Promise<Finding> {
  const existing = await nearestExisting(path);
  const type = await typeOf(existing);
  if (type === "tmpfs") return ok("sockets", `${path} is on a tmpfs`);
  return ok("sockets", `${path} is on ${type}; a tmpfs is emptied at a reboot, which suits sockets better`);
}

async function typeOf(path: string): Promise<string> {
  const { type } = await statfs(path);
  return fileSystems[type] ?? `type 0x${type.toString(16)}`;
}

/** Tries it with a file of one block. False if nothing can be written. */
async function canReflink(dir: string): Promise<boolean> {
  if (!(await stat(dir)).isDirectory()) return false;
  const path = join(dir, `.forkd-doctor-${randomBytes(6).toString("hex")}`);
  try {
    await writeFile(path, Buffer.alloc(4096, 1), { mode: 0o600 });
    await copyFile(path, `${path}-2`, constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch {
    return false;
  } finally {
    for (const each of [path, `${path}-2`]) await rm(each, { force: true });
  }
}

async function nearestExisting(path: string): Promise<string> {
  try {
    await access(path);
    return path;
  } catch {
    return dirname(path) === path ? path : nearestExisting(dirname(path));
  }
}

async function isWritable(path: string): Promise<boolean> {
  return access(path, constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
}
