/** The entries of `files`: those of the recipes that `files_of` names, then those of the recipe itself. */
import { realpath } from "node:fs/promises";
import { resolve } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { Invalid } from "./invalid.ts";
import type { FileEntry } from "./recipe-files.ts";
import { readRecipeJson } from "./recipe-json.ts";
import type { ParsedRecipe } from "./recipe-schema.ts";

/** Each entry has the directory of the recipe whose it is. Its files must be inside that one. */
export async function fileEntries(root: string, { files, files_of }: ParsedRecipe): Promise<FileEntry[]> {
  const entries: FileEntry[] = [];
  for (const [index, path] of files_of.entries())
    entries.push(...(await entriesOfOther(root, `files_of[${index}]`, path)));
  return [...entries, ...entriesOf(root, "", files)];
}

function entriesOf(root: string, field: string, files: ParsedRecipe["files"]): FileEntry[] {
  return files.map((entry, index) => ({ root, field: `${field}files[${index}]`, entry }));
}

/** A recipe without `files` is a mistake, and one with `files_of` would make cycles possible. */
async function entriesOfOther(root: string, field: string, path: string): Promise<FileEntry[]> {
  const missing = (cause: unknown) => new Invalid(`${field}: there is no recipe "${path}"`, { cause });
  const other = await realpath(resolve(root, path)).catch((error: unknown) => {
    throw isErrno(error, "ENOENT", "ENOTDIR", "ELOOP") ? missing(error) : error;
  });
  const { files, files_of } = await readRecipeJson(other).catch((error: unknown) => {
    if (error instanceof Invalid)
      throw new Invalid(`${field}: the recipe "${path}": ${error.message}`, error.options);
    throw error instanceof AppError && error.code === "recipe_not_found" ? missing(error) : error;
  });
  if (files_of.length > 0)
    throw new Invalid(`${field}: the recipe "${path}" has files_of itself`, {
      remedy: advice("Name the recipes that have the files."),
    });
  if (files.length === 0) throw new Invalid(`${field}: the recipe "${path}" has no files`);
  return entriesOf(other, `${field}: `, files);
}
