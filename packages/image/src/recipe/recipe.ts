/** Reads a recipe: recipe.json and the files it names, inside its directory or those of `files_of`. */
import { realpath } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { isErrno } from "@forkd/base";
import { AppError, errorMessage, toAppError } from "@forkd/contract";
import { parseReference } from "../oci/reference.ts";
import { fileEntries } from "./files-of.ts";
import { Invalid } from "./invalid.ts";
import { hasSteps, readSteps } from "./read-steps.ts";
import { addEntry, readText, type RecipeFile } from "./recipe-files.ts";
import { notFound, readRecipeJson, recipeFile } from "./recipe-json.ts";
import {
  isRecipePath,
  maxWarmupBytes,
  recipeDigest,
  rootfsDigest,
  type ParsedRecipe,
  type RecipeSpec,
} from "./recipe-schema.ts";
import { resolveSteps } from "./resolve-steps.ts";
import type { RecipeStep } from "./step-schema.ts";

export type Recipe = {
  dir: string;
  spec: RecipeSpec;
  /** files of the root file system in the order of the recipe, directories before their content */
  files: RecipeFile[];
  /** what is done in the guest over the root file system, or over the recipe that this one extends */
  steps: RecipeStep[];
  /** the recipe beside this one that it extends, if `from` is a path */
  parent?: Recipe | undefined;
  /** covers base, files, disk_mib and the builder's version */
  rootfsDigest: string;
  /** covers the whole recipe except its description */
  digest: string;
};

/** recipes that extend each other */
const maxParents = 8;
const defaults = { memoryMib: 512, vcpus: 1 };

/** Reads the recipe in a directory, or the one of a recipe.json. Throws `recipe_not_found` or `invalid_recipe`. */
export function readRecipe(path: string): Promise<Recipe> {
  return readExtended(path, []);
}

/** `children` are the recipes that extend this one, directly or not. */
async function readExtended(path: string, children: readonly string[]): Promise<Recipe> {
  const dir = basename(path) === recipeFile ? dirname(path) : path;
  const root = await realpath(dir).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR")) throw error;
    throw notFound(dir, error);
  });
  try {
    return await readFrom(root, [...children, root]);
  } catch (error) {
    if (!(error instanceof Invalid)) throw error;
    const message = `Cannot read the recipe "${join(root, recipeFile)}": ${error.message}`;
    throw new AppError("invalid_recipe", message, error.options);
  }
}

/** `seen` ends with this recipe. */
async function readFrom(root: string, seen: readonly string[]): Promise<Recipe> {
  const parsed = await readRecipeJson(root);
  checkBaseImage(root, parsed);
  const entries = await fileEntries(root, parsed);
  const files: RecipeFile[] = [];
  if (!hasSteps(parsed)) for (const entry of entries) await addEntry(files, entry);
  const { apt: _, pip: __, npm: ___, steps: ____, dockerfile: _____, ...rest } = parsed;
  const isExtension = parsed.from !== undefined;
  const spec: RecipeSpec = {
    ...rest,
    memory_mib: parsed.memory_mib ?? (isExtension ? undefined : defaults.memoryMib),
    vcpus: parsed.vcpus ?? (isExtension ? undefined : defaults.vcpus),
    languages: await readWarmups(root, parsed),
  };
  const steps = await readSteps(root, parsed, entries);
  // Where they are known to be wrong before the base is there.
  resolveSteps(steps, { env: spec.env });
  const parent = await readParent(root, spec.from, seen);
  const rootfs = rootfsDigest(spec, files);
  const digest = recipeDigest(spec, { rootfs, steps, parent: parent?.digest });
  return { dir: root, spec, files, steps, parent, rootfsDigest: rootfs, digest };
}

async function readParent(
  root: string,
  from: string | undefined,
  seen: readonly string[],
): Promise<Recipe | undefined> {
  if (from === undefined || !isRecipePath(from)) return undefined;
  const path = await realpath(resolve(root, from)).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "ELOOP")) throw error;
    throw new Invalid(`from: there is no recipe "${from}"`, { cause: error });
  });
  if (seen.includes(path)) throw new Invalid(`from: "${from}" extends this recipe`);
  if (seen.length > maxParents) throw new Invalid(`from: more than ${maxParents} recipes extend each other`);
  return await readExtended(path, seen);
}

/** Throws for a reference that cannot name an image. */
function checkBaseImage(root: string, { base }: ParsedRecipe): void {
  if (base.image === undefined) return;
  try {
    parseReference(base.image, root);
  } catch (error) {
    const { remedy } = toAppError(error);
    throw new Invalid(`base.image: ${errorMessage(error)}`, { remedy, cause: error });
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
      warmup:
        file === undefined ? warmup : await readText(root, field, { path: file, maxBytes: maxWarmupBytes }),
      ...(rehearse !== undefined && { rehearse }),
    };
  }
  return read;
}
