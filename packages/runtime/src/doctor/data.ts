/** The data directory: usable snapshots, sandboxes and leftovers. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { errorMessage, tagPattern } from "@forkd/contract";
import { attachmentRoles, diskName, fileNames, readSnapshot, type StoredSnapshot } from "@forkd/store";
import type { RuntimeConfig } from "../config.ts";
import { ok, warn, type Finding } from "./finding.ts";

const shownTags = 5;

/** Reads every manifest and compares the sizes of its files, but not their contents. */
export async function snapshotFinding(config: RuntimeConfig): Promise<Finding> {
  const root = join(config.dataDir, "snapshots");
  const tags = (await namesIn(root)).filter((name) => tagPattern.test(name));
  const broken: string[] = [];
  for (const tag of tags) {
    const problem = await problemOf(join(root, tag), tag);
    if (problem !== undefined) broken.push(`${tag} (${problem})`);
  }
  if (broken.length === 0) return ok("snapshots", `${tags.length} with all their files`);
  const rest = broken.length > shownTags ? ` and ${broken.length - shownTags} more` : "";
  return warn(
    "snapshots",
    `${broken.length} of ${tags.length} cannot be used: ${broken.slice(0, shownTags).join(", ")}${rest}`,
    { action: "verify_snapshots" },
  );
}

async function problemOf(dir: string, tag: string): Promise<string | undefined> {
  try {
    return await missingFile(await readSnapshot(dir, tag));
  } catch (error) {
    return errorMessage(error);
  }
}

async function missingFile({ dir, manifest: { files } }: StoredSnapshot): Promise<string | undefined> {
  const wanted: [name: string, bytes: number][] = [
    [fileNames.devices, files.devices.bytes],
    [fileNames.rootfs, files.rootfs.bytes],
    ...files.disks.map(({ bytes }, index): [string, number] => [diskName(index), bytes]),
  ];
  for (const role of attachmentRoles) {
    const file = files[role];
    if (file) wanted.push([fileNames[role], file.bytes]);
  }
  if (files.memory) wanted.push([fileNames.memory, files.memory.bytes]);
  if (files.layer) wanted.push([fileNames.layer, files.layer.bytes]);
  for (const [name, bytes] of wanted) {
    const found = await stat(join(dir, name)).catch((error: unknown) => {
      if (isErrno(error, "ENOENT")) return undefined;
      throw error;
    });
    if (found === undefined) return `${name} is missing`;
    if (found.size !== bytes) return `${name} has ${found.size} bytes instead of ${bytes}`;
  }
  return undefined;
}

/** Without a daemon: what the next one will adopt or remove. */
export async function sandboxFinding(config: RuntimeConfig): Promise<Finding> {
  const count = (await namesIn(join(config.dataDir, "sandboxes"))).filter((name) =>
    name.startsWith("sb-"),
  ).length;
  if (count === 0) return ok("sandboxes", "none");
  return ok("sandboxes", `${count} on disk, which the next daemon takes care of`);
}

async function namesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}
