/** Reads a recipe: recipe.json and the files it names, which must all be inside its directory. */
import { lstat, readdir, readFile, readlink, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, posix, relative, resolve, sep } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError, errorMessage, type AppErrorOptions } from "@forkd/contract";
import { sha256File } from "../files/digest.ts";
import {
  describeIssues,
  recipeDigest,
  recipeSchema,
  rootfsDigest,
  type RecipeFile,
  type RecipeSpec,
} from "./recipe-schema.ts";

export type Recipe = {
  dir: string;
  spec: RecipeSpec;
  /** in the order of the recipe, directories before their content */
  files: RecipeFile[];
  /** covers base, files, disk_mib and the builder's version */
  rootfsDigest: string;
  /** covers the whole recipe except its description */
  digest: string;
};

const maxRecipeBytes = 4 << 20;
const maxFiles = 20_000;

/** Throws `recipe_not_found` or `invalid_recipe`. */
export async function readRecipe(dir: string): Promise<Recipe> {
  const root = await realpath(dir).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR")) throw error;
    throw notFound(dir, error);
  });
  const spec = parseRecipe(await readRecipeJson(root));
  const files: RecipeFile[] = [];
  for (const [index, entry] of spec.files.entries()) {
    await addEntry(files, { root, index, entry });
  }
  const rootfs = rootfsDigest(spec, files);
  return { dir: root, spec, files, rootfsDigest: rootfs, digest: recipeDigest(spec, rootfs) };
}

/** Parses the text of a recipe.json. Throws `invalid_recipe`. */
function parseRecipe(text: string): RecipeSpec {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw invalid(`recipe.json is not JSON: ${errorMessage(error)}`, { cause: error });
  }
  const parsed = recipeSchema.safeParse(json);
  if (!parsed.success) throw invalid(describeIssues(parsed.error), { cause: parsed.error });
  return parsed.data;
}

async function readRecipeJson(root: string): Promise<string> {
  const path = join(root, "recipe.json");
  try {
    const info = await stat(path);
    if (!info.isFile()) throw invalid("recipe.json is not a file");
    if (info.size > maxRecipeBytes) throw invalid(`recipe.json is larger than ${maxRecipeBytes} bytes`);
    return await readFile(path, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) throw notFound(root, error);
    throw error;
  }
}

type Entry = { root: string; index: number; entry: RecipeSpec["files"][number] };

async function addEntry(files: RecipeFile[], { root, index, entry }: Entry): Promise<void> {
  const field = `files[${index}]`;
  const source = await realpath(join(root, entry.from)).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "ELOOP")) throw error;
    throw invalid(`${field}.from: "${entry.from}" is not in the recipe`, { cause: error });
  });
  if (!isInside(root, source)) throw invalid(`${field}.from: "${entry.from}" is outside of the recipe`);
  const info = await lstat(source);
  if (info.isDirectory() && entry.mode !== undefined) {
    throw invalid(`${field}.mode: "${entry.from}" is a directory, whose files keep their own modes`, {
      remedy: advice('Remove "mode".'),
    });
  }
  const before = files.length;
  await addPath(files, { root, field, source, to: entry.to });
  const first = files[before];
  if (entry.mode !== undefined && first !== undefined) first.mode = Number.parseInt(entry.mode, 8);
}

type Path = { root: string; field: string; source: string; to: string };

async function addPath(files: RecipeFile[], { root, field, source, to }: Path): Promise<void> {
  if (files.length >= maxFiles) throw invalid(`files: more than ${maxFiles} files and directories`);
  const info = await lstat(source);
  const name = relative(root, source);
  if (info.isFile()) {
    const mode = (info.mode & 0o100) === 0 ? 0o644 : 0o755;
    files.push({ source, to, mode, type: "file", sha256: await sha256File(source) });
  } else if (info.isSymbolicLink()) {
    const target = await readlink(source);
    const inside = !isAbsolute(target) && isInside(root, resolve(dirname(source), target));
    if (!inside) throw invalid(`${field}.from: the link "${name}" points outside of the recipe`);
    files.push({ source, to, mode: 0o777, type: "link", target });
  } else if (info.isDirectory()) {
    files.push({ source, to, mode: 0o755, type: "directory" });
    for (const each of (await readdir(source)).sort()) {
      await addPath(files, { root, field, source: join(source, each), to: posix.join(to, each) });
    }
  } else {
    throw invalid(`${field}.from: "${name}" is neither a file, a directory nor a link`);
  }
}

function isInside(root: string, path: string): boolean {
  return path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
}

function invalid(message: string, options?: AppErrorOptions): AppError {
  return new AppError("invalid_recipe", `Cannot read the recipe: ${message}`, options);
}

function notFound(dir: string, cause: unknown): AppError {
  return new AppError("recipe_not_found", `Cannot find a recipe in "${dir}": there is no recipe.json`, {
    cause,
  });
}
