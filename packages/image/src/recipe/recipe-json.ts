/** Reads and parses recipe.json. */
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { Invalid } from "./invalid.ts";
import { describeIssues, describeJsonFault, wordIssue } from "./recipe-issues.ts";
import { recipeSchema, type ParsedRecipe } from "./recipe-schema.ts";

export const recipeFile = "recipe.json";
const maxRecipeBytes = 4 << 20;

/** The recipe.json in a directory. Throws `recipe_not_found` or Invalid. */
export async function readRecipeJson(root: string): Promise<ParsedRecipe> {
  return parseRecipe(await readJsonText(root));
}

async function readJsonText(root: string): Promise<string> {
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

/** Parses the text of a recipe.json. Throws Invalid. */
function parseRecipe(text: string): ParsedRecipe {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new Invalid(`it is not JSON: ${describeJsonFault(text)}`, { cause: error });
  }
  const parsed = recipeSchema.safeParse(json, { error: wordIssue });
  if (!parsed.success) throw new Invalid(describeIssues(parsed.error), { cause: parsed.error });
  if (parsed.data.from !== undefined) refuseOwnBase(json);
  return parsed.data;
}

/** Schema defaults hide whether the keys are there. */
function refuseOwnBase(json: unknown): void {
  const given = ["base", "disk_mib"].filter(
    (key) => typeof json === "object" && json !== null && key in json,
  );
  if (given.length > 0)
    throw new Invalid(`${given.join(", ")}: cannot be given with from: the disk is that of the other recipe`);
}

export function notFound(dir: string, cause: unknown): AppError {
  return new AppError("recipe_not_found", `Cannot find a recipe in "${dir}": there is no recipe.json`, {
    cause,
  });
}
