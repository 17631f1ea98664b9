/** The shelf: recipes of snapshots that come with forkd, and programs that use these snapshots. */
import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { AppError, errorMessage, similarNames } from "@forkd/contract/wire";
import { bundledDir } from "../guest/recipes.ts";

export type ShelfEntry = {
  readonly name: string;
  readonly dir: string;
  /** A recipe describes a snapshot; a program uses the snapshot of a recipe. */
  readonly kind: "recipe" | "program";
  readonly description: string;
  /** Tag of the snapshot that the demo uses; a recipe names its own. */
  readonly snapshot: string;
  /** File name of the demo; undefined if there is none. */
  readonly demo: string | undefined;
};

/** What an entry consists of, for a reader. */
export type EntryContents = {
  /** First paragraph of the README. */
  readonly summary: string;
  readonly files: readonly string[];
  /** recipe.json or program.json as it is. */
  readonly recipe: Readonly<Record<string, unknown>>;
};

const recipeFile = "recipe.json";
const programFile = "program.json";
const demoFiles = ["demo.py", "demo.mjs", "demo.sh"] as const;
const maxFileBytes = 256 * 1024;
const maxFiles = 200;

/** All entries, by name. */
export async function readShelf(recipesDir = bundledDir): Promise<ShelfEntry[]> {
  const names = (await readdir(recipesDir).catch(() => [])).filter((name) => /^[A-Za-z0-9]/.test(name));
  const entries = await Promise.all(names.toSorted().map((name) => readEntry(recipesDir, name)));
  return entries.filter((entry) => entry !== undefined);
}

export async function findEntry(name: string, recipesDir = bundledDir): Promise<ShelfEntry> {
  const shelf = await readShelf(recipesDir);
  const found = shelf.find((entry) => entry.name === name);
  if (found !== undefined) return found;
  const names = shelf.map((entry) => entry.name);
  throw new AppError(
    "recipe_not_found",
    `"${name}" is not on the shelf. Bundled recipes: ${names.join(", ")}`,
    { details: similarNames(name, names) },
  );
}

/** undefined if the directory is not a recipe. */
async function readEntry(recipesDir: string, name: string): Promise<ShelfEntry | undefined> {
  const dir = join(recipesDir, name);
  const files: string[] = await readdir(dir).catch(() => []);
  const kind = files.includes(recipeFile) ? "recipe" : files.includes(programFile) ? "program" : undefined;
  if (kind === undefined) return undefined;
  const facts = await readFacts(dir, kind);
  const uses = textOf(facts["uses"]);
  return {
    name,
    dir,
    kind,
    description: textOf(facts["description"]) ?? "",
    snapshot: kind === "program" ? (uses ?? name) : name,
    demo: demoFiles.find((file) => files.includes(file)),
  };
}

export async function readContents({ dir, kind }: ShelfEntry): Promise<EntryContents> {
  const [readme, names, recipe] = await Promise.all([
    readSmallFile(join(dir, "README.md")).catch(() => ""),
    readdir(dir, { recursive: true }),
    readFacts(dir, kind),
  ]);
  return { summary: firstParagraph(readme), files: names.toSorted().slice(0, maxFiles), recipe };
}

async function readFacts(dir: string, kind: ShelfEntry["kind"]): Promise<Record<string, unknown>> {
  const file = kind === "recipe" ? recipeFile : programFile;
  try {
    const value: unknown = JSON.parse(await readSmallFile(join(dir, file)));
    if (typeof value === "object" && value !== null) return { ...value };
    throw new Error("it is not an object");
  } catch (error) {
    // The shelf is still listed; a build of this recipe reports the error.
    return { description: `${file} cannot be read: ${errorMessage(error)}` };
  }
}

export async function readSmallFile(path: string): Promise<string> {
  await using file = await open(path);
  const { size } = await file.stat();
  if (size > maxFileBytes) throw new Error(`${path} has more than ${maxFileBytes} bytes`);
  return await file.readFile("utf8");
}

/** The text after the heading, up to the next blank line, on one line. */
function firstParagraph(readme: string): string {
  const paragraphs = readme.split(/\n\s*\n/).map((each) => each.trim());
  const first = paragraphs.find((each) => each !== "" && !each.startsWith("#")) ?? "";
  return first.replaceAll(/\s+/g, " ").replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1");
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
