/**
 * Package files that earlier builds have downloaded: `<images>/packages/<suite>-<mirrors>/*.deb`.
 *
 * Only files that the signed index contains with the same digest are used again (offer-archives.ts). A build
 * works without the cache, so failures in it are ignored.
 */
import { link, mkdir, readdir, rm, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isErrno } from "@forkd/base";
import { digestOf } from "../files/digest.ts";

/** all suites and mirrors together */
const maxCacheBytes = 2 ** 30;
const shownDigits = 8;

/** Creates the directory for the packages of a suite from these mirrors. */
export async function openPackageCache(
  imageDir: string,
  { suite, mirrors }: { suite: string; mirrors: readonly string[] },
): Promise<string> {
  const key = digestOf({ suite, mirrors: [...mirrors].sort() }).slice(0, shownDigits);
  const directory = resolve(imageDir, "packages", `${suite}-${key}`);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  return directory;
}

/** Settings of apt and arguments of mmdebstrap that use the cache and fill it. */
export function packageCacheOptions(cache: string, tree: string): { settings: string; args: string[] } {
  const offer = fileURLToPath(new URL("./offer-archives.js", import.meta.url));
  const command = [process.execPath, offer, cache, resolve(tree)].map(shellQuoted).join(" ");
  // The quotation marks of apt's settings have no escape.
  if (/["\\]/.test(command)) return { settings: "", args: [] };
  return {
    settings: `APT::Update::Post-Invoke-Success { "${command} || true"; };\n`,
    args: [
      // Otherwise the essential packages are removed before the hook.
      "--skip=essential/unlink",
      `--customize-hook=ln -f -t ${shellQuoted(cache)} "$1"/var/cache/apt/archives/*.deb || true`,
    ],
  };
}

/** Keeps the package files of a directory for later builds. Those that are there stay. */
export async function keepArchives(archives: string, cache: string): Promise<void> {
  for (const name of await readdir(archives)) {
    if (!name.endsWith(".deb")) continue;
    await link(join(archives, name), join(cache, name)).catch((error: unknown) => {
      if (!isErrno(error, "EEXIST", "EXDEV", "EPERM", "EMLINK")) throw error;
    });
  }
}

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Removes the files that were not used for the longest time, until the cache is within its bound. */
export async function limitPackageCache(imageDir: string, maxBytes = maxCacheBytes): Promise<void> {
  const root = join(imageDir, "packages");
  const files: { path: string; bytes: number; usedAtMs: number }[] = [];
  for (const name of await readdir(root, { recursive: true })) {
    const path = join(root, name);
    const facts = await stat(path).catch((error: unknown) => {
      if (isErrno(error, "ENOENT")) return undefined;
      throw error;
    });
    if (facts?.isFile()) files.push({ path, bytes: facts.blocks * 512, usedAtMs: facts.mtimeMs });
  }
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  for (const file of files.toSorted((a, b) => a.usedAtMs - b.usedAtMs)) {
    if (bytes <= maxBytes) return;
    await rm(file.path, { force: true });
    bytes -= file.bytes;
  }
}
