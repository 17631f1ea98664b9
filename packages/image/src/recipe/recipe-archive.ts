/**
 * A recipe as one tar archive, so that it can travel with the snapshot that it made. It has recipe.json and the
 * files that this names, and nothing else of the directory: that may hold what its owner does not want to publish.
 */
import { lstat, mkdir, readdir, readFile, readlink, realpath, symlink, writeFile } from "node:fs/promises";
import { dirname, isAbsolute, join, posix } from "node:path";
import { isErrno } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";
import { BadTar, decodeTar, encodeTar, type TarEntry } from "../files/tar.ts";
import { isLocalImage } from "../oci/reference.ts";
import { fileEntries } from "./files-of.ts";
import { stepPaths } from "./read-steps.ts";
import { recipeFile } from "./recipe-json.ts";
import { readRecipe, type Recipe } from "./recipe.ts";
import { isRecipePath, recipeSchema, type ParsedRecipe } from "./recipe-schema.ts";

const maxEntries = 20_000;
const maxArchiveBytes = 64 << 20;

/** What a build was asked for in addition to its recipe; it replaces the same keys of recipe.json. */
export type RecipeChanges = {
  [Key in "run" | "env" | "memory_mib" | "vcpus"]?: ParsedRecipe[Key] | undefined;
} & {
  languages?: Record<string, { warmup: string; rehearse?: string | undefined } | undefined> | undefined;
};

/**
 * Packs a recipe. Returns why it cannot be packed if it is too large. `scratch` is a new directory, where the
 * archive is unpacked to see that it gives the same recipe.
 */
export async function packRecipe(
  recipe: Recipe,
  { changes, scratch }: { changes: RecipeChanges; scratch: string },
): Promise<{ bytes: Buffer } | { problem: string }> {
  if (recipe.parent) return { problem: "it extends a recipe beside it" };
  const entries = new Entries();
  try {
    const { text, named } = await selfContained(recipe.dir);
    const problem = outsideOf(JSON.parse(text));
    if (problem !== undefined) return { problem };
    const json = (content: string) =>
      ({ path: recipeFile, type: "file", mode: 0o644, content: Buffer.from(content) }) as const;
    entries.add(json(text));
    for (const { source, path } of named)
      await addPath(entries, await realpath(source), posix.normalize(path).replace(/\/$/, ""));
    await unpackRecipe(encodeTar(entries.all), scratch);
    if ((await readRecipe(scratch)).digest !== recipe.digest)
      return { problem: "it changed during the build" };
    const changed = changedRecipe(text, changes);
    if (changed !== undefined) entries.replace(json(changed));
    return { bytes: encodeTar(entries.all) };
  } catch (error) {
    if (error instanceof RangeError) return { problem: error.message };
    // A file that a recipe names is gone, or a kind of file that this does not know.
    if (error instanceof AppError || isErrno(error, "ENOENT")) return { problem: errorMessage(error) };
    throw error;
  }
}

/** Entries by path, with the directories above them. */
class Entries {
  readonly #found = new Map<string, TarEntry>();
  #bytes = 0;

  get all(): TarEntry[] {
    return [...this.#found.values()];
  }

  add(entry: TarEntry): void {
    const parent = posix.dirname(entry.path);
    if (parent !== "." && !this.#found.has(parent)) this.add({ path: parent, type: "directory" });
    if (!this.#found.has(entry.path)) this.replace(entry);
  }

  /** Throws RangeError when it is too much. */
  replace(entry: TarEntry): void {
    this.#found.set(entry.path, entry);
    this.#bytes += 1024 + (entry.type === "file" ? entry.content.length : 0);
    if (this.#found.size > maxEntries) throw new RangeError(`it has more than ${maxEntries} files`);
    if (this.#bytes > maxArchiveBytes) throw new RangeError(`it is larger than ${maxArchiveBytes >> 20} MiB`);
  }
}

/** A file or directory that recipe.json names. */
type NamedPath = {
  /** on the host */
  source: string;
  /** in the archive */
  path: string;
};

/** recipe.json with the files of other recipes as its own, and everything that it names. */
async function selfContained(root: string): Promise<{ text: string; named: NamedPath[] }> {
  const text = await readFile(join(root, recipeFile), "utf8");
  const parsed = recipeSchema.parse(JSON.parse(text));
  const warmups = Object.values(parsed.languages).flatMap((kernel) => kernel?.warmup_file ?? []);
  const own = [...warmups, ...(await stepPaths(root, parsed))];
  const entries = await fileEntries(root, parsed);
  const others = [...new Set(entries.map((entry) => entry.root))].filter((each) => each !== root);
  const files = entries.map(({ root: each, entry }) => ({
    ...entry,
    from: each === root ? entry.from : posix.join("files_of", `${others.indexOf(each)}`, entry.from),
  }));
  const named = [
    ...own.map((path) => ({ source: join(root, path), path })),
    ...entries.map((each, index) => ({
      source: join(each.root, each.entry.from),
      path: files[index]?.from ?? "",
    })),
  ];
  if (others.length === 0) return { text, named };
  const { files_of: _, ...rest } = JSON.parse(text) as Record<string, unknown>;
  return { text: `${JSON.stringify({ ...rest, files }, undefined, 2)}\n`, named };
}

/** What a recipe uses of the host beside its own directory, which an archive neither has nor may name. */
function outsideOf(json: unknown): string | undefined {
  const parsed = recipeSchema.safeParse(json);
  // readRecipe() says what is wrong with it.
  if (!parsed.success) return undefined;
  const { from, files_of, base } = parsed.data;
  if (from !== undefined && isRecipePath(from))
    return `it extends the recipe "${from}", which is not a part of it`;
  if (files_of[0] !== undefined)
    return `it has the files of the recipe "${files_of[0]}", which is not a part of it`;
  if (base.image !== undefined && isLocalImage(base.image))
    return `its base is the image "${base.image}", which is not a part of it`;
  return undefined;
}

async function addPath(entries: Entries, source: string, path: string): Promise<void> {
  const facts = await lstat(source);
  if (facts.isDirectory()) {
    if (path !== ".") entries.add({ path, type: "directory" });
    for (const name of (await readdir(source)).sort())
      await addPath(entries, join(source, name), path === "." ? name : posix.join(path, name));
  } else if (facts.isSymbolicLink()) {
    entries.add({ path, type: "link", target: await readlink(source) });
  } else if (facts.isFile()) {
    if (facts.size > maxArchiveBytes) throw new RangeError(`it is larger than ${maxArchiveBytes >> 20} MiB`);
    const mode = (facts.mode & 0o100) === 0 ? 0o644 : 0o755;
    entries.add({ path, type: "file", mode, content: await readFile(source) });
  }
}

/** undefined if nothing differs */
function changedRecipe(text: string, changes: RecipeChanges): string | undefined {
  const given = Object.entries(changes).filter(([, value]) => value !== undefined);
  if (given.length === 0) return undefined;
  const json: unknown = JSON.parse(text);
  const recipe = { ...(json as Record<string, unknown>), ...Object.fromEntries(given) };
  if (!recipeSchema.safeParse(recipe).success)
    throw new RangeError("what the build was asked for does not fit into a recipe");
  return `${JSON.stringify(recipe, undefined, 2)}\n`;
}

/**
 * Unpacks an archive from anybody into a new directory. Throws `invalid_recipe` for one that packRecipe() does
 * not make: paths outside, links that lead outside, entries below a link, a recipe that uses others of this host.
 */
export async function unpackRecipe(bytes: Buffer, dir: string): Promise<void> {
  if (bytes.length > maxArchiveBytes + (1 << 20)) throw bad(`it is larger than ${maxArchiveBytes >> 20} MiB`);
  const links = new Set<string>();
  const seen = new Set<string>();
  await mkdir(dir, { mode: 0o700 });
  for (const entry of decode(bytes)) {
    const { path } = entry;
    const problem = pathProblem(path) ?? (seen.has(path) ? "it is there twice" : belowLink(path, links));
    if (problem !== undefined) throw bad(`"${path}": ${problem}`);
    seen.add(path);
    if (path === recipeFile) refuseOutside(entry);
    if (entry.type === "link") {
      links.add(path);
      const target = posix.join(posix.dirname(path), entry.target);
      if (isAbsolute(entry.target) || entry.target === "" || target === ".." || target.startsWith("../"))
        throw bad(`"${path}": it points outside of the recipe`);
    }
    await write(entry, join(dir, path));
  }
  for (const path of links) await checkLink(dir, path);
}

/** ".." behind a link to a directory is not what it seems: several links together may lead outside. */
async function checkLink(dir: string, path: string): Promise<void> {
  try {
    const [root, target] = [await realpath(dir), await realpath(join(dir, path))];
    if (target !== root && !target.startsWith(`${root}/`))
      throw bad(`"${path}": it points outside of the recipe`);
  } catch (error) {
    // It leads nowhere.
    if (!isErrno(error, "ENOENT", "ENOTDIR", "ELOOP")) throw error;
  }
}

function refuseOutside(entry: TarEntry): void {
  if (entry.type !== "file") throw bad(`"${recipeFile}": it is not a file`);
  let json: unknown;
  try {
    json = JSON.parse(Buffer.from(entry.content).toString("utf8"));
  } catch {
    return; // readRecipe() says where it is not JSON
  }
  const problem = outsideOf(json);
  if (problem !== undefined) throw bad(problem);
}

async function write(entry: TarEntry, path: string): Promise<void> {
  if (entry.type === "directory") return void (await mkdir(path, { recursive: true, mode: 0o755 }));
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  if (entry.type === "link") await symlink(entry.target, path);
  else await writeFile(path, entry.content, { mode: (entry.mode & 0o100) === 0 ? 0o644 : 0o755, flag: "wx" });
}

function decode(bytes: Buffer): TarEntry[] {
  try {
    return decodeTar(bytes, { maxEntries });
  } catch (error) {
    if (error instanceof BadTar) throw bad(error.message, error);
    throw error;
  }
}

function pathProblem(path: string): string | undefined {
  if (path === "" || isAbsolute(path) || path.includes("\0")) return "it is not a path in the recipe";
  const isPlain = posix.normalize(path) === path && !path.endsWith("/") && path !== "." && path !== "..";
  return isPlain && !path.startsWith("../") ? undefined : "it is not a plain path in the recipe";
}

/** Writing below a link would write where it points. */
function belowLink(path: string, links: ReadonlySet<string>): string | undefined {
  for (let parent = posix.dirname(path); parent !== "."; parent = posix.dirname(parent))
    if (links.has(parent)) return "it is below a symbolic link";
  return undefined;
}

function bad(why: string, cause?: unknown): AppError {
  return new AppError("invalid_recipe", `Cannot unpack the recipe: ${why}`, { cause });
}
