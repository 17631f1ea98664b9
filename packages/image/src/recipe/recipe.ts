/** Reads a recipe: recipe.json and the files it names, which must all be inside its directory. */
import { isUtf8 } from "node:buffer";
import { lstat, readdir, readFile, readlink, realpath, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, posix, relative, resolve, sep } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError, type AppErrorOptions } from "@forkd/contract";
import { sha256File } from "../files/digest.ts";
import { describeIssues, describeJsonFault, wordIssue } from "./recipe-issues.ts";
import {
  maxWarmupBytes,
  recipeDigest,
  recipeSchema,
  rootfsDigest,
  type ParsedRecipe,
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

const recipeFile = "recipe.json";
const maxRecipeBytes = 4 << 20;
const maxFiles = 20_000;

/** Reads the recipe in a directory, or the one of a recipe.json. Throws `recipe_not_found` or `invalid_recipe`. */
export async function readRecipe(path: string): Promise<Recipe> {
  const dir = basename(path) === recipeFile ? dirname(path) : path;
  const root = await realpath(dir).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR")) throw error;
    throw notFound(dir, error);
  });
  try {
    return await readFrom(root);
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
    const message = `Cannot read the recipe "${join(root, recipeFile)}": ${error.message}`;
    throw new AppError("invalid_recipe", message, error.options);
  }
}

/** What is wrong with a recipe; readRecipe() adds its path. */
class Invalid extends Error {
  readonly options: AppErrorOptions;

  constructor(message: string, options: AppErrorOptions = {}) {
    super(message);
    this.options = options;
  }
}

async function readFrom(root: string): Promise<Recipe> {
  const parsed = parseRecipe(await readRecipeJson(root));
  const files: RecipeFile[] = [];
  for (const [index, entry] of parsed.files.entries()) {
    await addEntry(files, { root, index, entry });
  }
  const spec: RecipeSpec = { ...parsed, languages: await readWarmups(root, parsed) };
  const rootfs = rootfsDigest(spec, files);
  return { dir: root, spec, files, rootfsDigest: rootfs, digest: recipeDigest(spec, rootfs) };
}

/** Parses the text of a recipe.json. */
function parseRecipe(text: string): ParsedRecipe {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new Invalid(`it is not JSON: ${describeJsonFault(text)}`, { cause: error });
  }
  const parsed = recipeSchema.safeParse(json, { error: wordIssue });
  if (!parsed.success) throw new Invalid(describeIssues(parsed.error), { cause: parsed.error });
  return parsed.data;
}

async function readRecipeJson(root: string): Promise<string> {
  const path = join(root, recipeFile);
  try {
    const info = await stat(path);
    if (!info.isFile()) throw new Invalid("it is not a file");
    if (info.size > maxRecipeBytes) throw new Invalid(`it is larger than ${maxRecipeBytes} bytes`);
    return await readFile(path, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) throw notFound(root, error);
    throw error;
  }
}

/** The code of each language, from the recipe itself or from the file that it names. */
async function readWarmups(root: string, { languages }: ParsedRecipe): Promise<RecipeSpec["languages"]> {
  const read: RecipeSpec["languages"] = {};
  for (const language of Object.keys(languages) as (keyof typeof languages)[]) {
    const kernel = languages[language];
    if (kernel === undefined) continue;
    const { warmup = "", warmup_file: file, rehearse } = kernel;
    const field = `languages.${language}.warmup_file`;
    read[language] = {
      warmup: file === undefined ? warmup : await readWarmup(root, field, file),
      ...(rehearse !== undefined && { rehearse }),
    };
  }
  return read;
}

async function readWarmup(root: string, field: string, path: string): Promise<string> {
  const source = await pathInRecipe(root, field, path);
  const info = await stat(source);
  if (!info.isFile()) throw new Invalid(`${field}: "${path}" is not a file`);
  if (info.size > maxWarmupBytes)
    throw new Invalid(`${field}: "${path}" is larger than ${maxWarmupBytes} bytes`);
  const bytes = await readFile(source);
  if (!isUtf8(bytes) || bytes.includes(0)) throw new Invalid(`${field}: "${path}" is not text in UTF-8`);
  return bytes.toString("utf8");
}

/** The real path of a file that the recipe names. */
async function pathInRecipe(root: string, field: string, path: string): Promise<string> {
  const source = await realpath(join(root, path)).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "ELOOP")) throw error;
    throw new Invalid(`${field}: "${path}" is not in the recipe`, { cause: error });
  });
  if (!isInside(root, source)) throw new Invalid(`${field}: "${path}" is outside of the recipe`);
  return source;
}

type Entry = { root: string; index: number; entry: ParsedRecipe["files"][number] };

async function addEntry(files: RecipeFile[], { root, index, entry }: Entry): Promise<void> {
  const field = `files[${index}]`;
  const source = await pathInRecipe(root, `${field}.from`, entry.from);
  const info = await lstat(source);
  if (info.isDirectory() && entry.mode !== undefined) {
    throw new Invalid(`${field}.mode: "${entry.from}" is a directory, whose files keep their own modes`, {
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
  if (files.length >= maxFiles) throw new Invalid(`files: more than ${maxFiles} files and directories`);
  const info = await lstat(source);
  const name = relative(root, source);
  if (info.isFile()) {
    const mode = (info.mode & 0o100) === 0 ? 0o644 : 0o755;
    files.push({ source, to, mode, type: "file", sha256: await sha256File(source) });
  } else if (info.isSymbolicLink()) {
    const target = await readlink(source);
    const inside = !isAbsolute(target) && isInside(root, resolve(dirname(source), target));
    if (!inside) throw new Invalid(`${field}.from: the link "${name}" points outside of the recipe`);
    files.push({ source, to, mode: 0o777, type: "link", target });
  } else if (info.isDirectory()) {
    files.push({ source, to, mode: 0o755, type: "directory" });
    for (const each of (await readdir(source)).sort()) {
      await addPath(files, { root, field, source: join(source, each), to: posix.join(to, each) });
    }
  } else {
    throw new Invalid(`${field}.from: "${name}" is neither a file, a directory nor a link`);
  }
}

function isInside(root: string, path: string): boolean {
  return path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
}

function notFound(dir: string, cause: unknown): AppError {
  return new AppError("recipe_not_found", `Cannot find a recipe in "${dir}": there is no recipe.json`, {
    cause,
  });
}
