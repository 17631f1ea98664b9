/** Files that forkd adds to a root file system: a minimal /etc, and the files of the recipe. */
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { isErrno } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { resolveInTree } from "./guest-path.ts";
import type { RecipeFile } from "../recipe/recipe-files.ts";
import { throwIfCancelled } from "../context.ts";

/** The hostname of the parent; each sandbox gets its own. */
const hostname = "forkd";

/** The address of the resolver in QEMU's user-mode network. */
const resolver = "10.0.2.3";

const etcFiles: Readonly<Record<string, string>> = {
  "/etc/hostname": `${hostname}\n`,
  "/etc/hosts": `127.0.0.1\tlocalhost\n127.0.1.1\t${hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n`,
  "/etc/resolv.conf": `nameserver ${resolver}\n`,
  "/etc/machine-id": "",
};

/** Replaces files that the build copied from the host. */
export async function writeEtc(tree: string): Promise<void> {
  for (const [path, text] of Object.entries(etcFiles)) {
    const target = await resolveInTree(tree, path);
    await rm(target, { force: true });
    await writeFile(target, text, { mode: 0o644 });
  }
}

/** Copies the files of a recipe; throws `invalid_recipe` when one has changed since the recipe was read. */
export async function copyFiles(
  tree: string,
  files: readonly RecipeFile[],
  signal?: AbortSignal,
): Promise<void> {
  for (const file of files) {
    throwIfCancelled(signal);
    const target = await resolveInTree(tree, file.to);
    try {
      await copyEntry(file, target);
    } catch (error) {
      if (!isErrno(error, "EISDIR", "ENOTDIR", "EEXIST", "ERR_FS_EISDIR")) throw error;
      throw new AppError(
        "invalid_recipe",
        `Cannot add "${file.to}" to the guest: a file or directory of another type is in its place`,
        {
          cause: error,
        },
      );
    }
  }
}

async function copyEntry(file: RecipeFile, target: string): Promise<void> {
  if (file.type === "directory") {
    // An existing directory of the system, like /etc, keeps its mode.
    await mkdir(target, { recursive: true, mode: file.mode });
    return;
  }
  await rm(target, { force: true });
  if (file.type === "link") {
    await symlink(file.target, target);
    return;
  }
  const hash = createHash("sha256");
  const source = createReadStream(file.source);
  source.on("data", (chunk) => hash.update(chunk));
  await pipeline(source, createWriteStream(target, { flags: "wx" }));
  await chmod(target, file.mode);
  if (hash.digest("hex") !== file.sha256) {
    throw new AppError("invalid_recipe", `Cannot copy "${file.source}": it changed during the build`, {
      remedy: { action: "retry_later" },
    });
  }
}
