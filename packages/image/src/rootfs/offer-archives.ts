/**
 * Offers cached package files to apt: a program that apt runs after it has updated its index.
 *
 *     node offer-archives.js CACHE TREE
 *
 * apt compares only the size of a file that it finds in its archives, so this program compares the SHA-256 of
 * each cached file with the index, whose signature apt has checked, and links only equal ones into the tree.
 * Files that the index no longer has are removed from the cache. It prints how many it offers.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { link, mkdir, readdir, readFile, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";

/** Read by the build to report the number. */
export const offeredLine = /^forkd: (\d+) packages from the cache$/;

/** The size and digest of a package file, from the index. */
type Wanted = { size: number; sha256: string };

/** Links the cached files that the index of the tree contains; returns how many. */
export async function offerArchives(cache: string, tree: string): Promise<number> {
  const names = (await readdir(cache)).filter((name) => name.endsWith(".deb"));
  if (names.length === 0) return 0;
  const lists = join(tree, "var/lib/apt/lists");
  const indices = (await readdir(lists)).filter((name) => name.endsWith("_Packages"));
  // Without a readable index nothing is known about the files.
  if (indices.length === 0) return 0;
  const wanted = new Map<string, Wanted[]>();
  for (const index of indices) addIndex(wanted, await readFile(join(lists, index), "latin1"), new Set(names));
  const archives = join(tree, "var/cache/apt/archives");
  await mkdir(archives, { recursive: true });
  let offered = 0;
  for (const name of names) {
    const path = join(cache, name);
    if (await isWanted(path, wanted.get(name) ?? [])) {
      await utimes(path, new Date(), new Date());
      await link(path, join(archives, name));
      offered++;
    } else {
      await rm(path, { force: true });
    }
  }
  return offered;
}

/** Adds the packages of an index whose files are among `names`. */
function addIndex(wanted: Map<string, Wanted[]>, text: string, names: ReadonlySet<string>): void {
  for (let at = 0; at < text.length;) {
    const end = text.indexOf("\n\n", at);
    const stanza = text.slice(at, end === -1 ? text.length : end);
    at = end === -1 ? text.length : end + 2;
    const field = (name: string): string => {
      const start = stanza.startsWith(`${name}: `) ? 0 : stanza.indexOf(`\n${name}: `) + 1;
      if (start === 0 && !stanza.startsWith(`${name}: `)) return "";
      const stop = stanza.indexOf("\n", start);
      return stanza.slice(start + name.length + 2, stop === -1 ? stanza.length : stop);
    };
    const name = archiveName(field("Package"), field("Version"), field("Architecture"));
    if (!names.has(name)) continue;
    const entry = { size: Number(field("Size")), sha256: field("SHA256") };
    wanted.set(name, [...(wanted.get(name) ?? []), entry]);
  }
}

/** The name of a package's file in apt's archives. */
export function archiveName(name: string, version: string, architecture: string): string {
  const quote = (text: string, bad: RegExp): string =>
    text.replaceAll(bad, (letter) => `%${letter.charCodeAt(0).toString(16).padStart(2, "0")}`);
  return `${quote(name, /[_:%]/g)}_${quote(version, /[_:%]/g)}_${quote(architecture, /[_:.%]/g)}.deb`;
}

async function isWanted(path: string, wanted: readonly Wanted[]): Promise<boolean> {
  const { size } = await stat(path);
  const candidates = wanted.filter((each) => each.size === size);
  if (candidates.length === 0) return false;
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  const digest = hash.digest("hex");
  return candidates.some(({ sha256 }) => sha256 === digest);
}

const [program, cache, tree] = process.argv.slice(1);
if (program === fileURLToPath(import.meta.url) && cache !== undefined && tree !== undefined) {
  process.stdout.write(`forkd: ${await offerArchives(cache, tree)} packages from the cache\n`);
}
