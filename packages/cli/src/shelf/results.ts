/**
 * Results of demos: the last one of each recipe on this installation, in `demos` of its data directory, and
 * those that come with forkd, in `results.json` beside the recipes.
 */
import { randomUUID } from "node:crypto";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { bundledDir } from "../guest/recipes.ts";
import { readSmallFile } from "./shelf.ts";

export type DemoResult = {
  readonly recipe: string;
  readonly ok: boolean;
  /** When the demo ended. */
  readonly at_unix: number;
  /** Version of forkd. */
  readonly version: string;
  /** Seconds of the demo, without a build. */
  readonly seconds: number;
  /** Seconds of the build, if the snapshot was built for this run. */
  readonly build_seconds?: number;
  /** Tag of the snapshot. */
  readonly snapshot: string;
  readonly accelerator: string;
  /** What the demo reports about its work. */
  readonly facts: Readonly<Record<string, unknown>>;
  /** Why it failed. */
  readonly error?: string;
};

/** The results that come with forkd, by name of the recipe. */
export async function readReleased(recipesDir = bundledDir): Promise<Map<string, DemoResult>> {
  const value = await readJson(join(recipesDir, "results.json"));
  const list = isObject(value) && Array.isArray(value["results"]) ? (value["results"] as unknown[]) : [];
  return new Map(list.filter(isResult).map((result) => [result.recipe, result]));
}

/** The last result here; undefined if there is none, or none that can be read. */
export async function readOwn(dataDir: string, recipe: string): Promise<DemoResult | undefined> {
  const value = await readJson(join(dataDir, "demos", `${recipe}.json`));
  return isResult(value) ? value : undefined;
}

/** Replaces the result in one step. */
export async function writeOwn(dataDir: string, result: DemoResult): Promise<void> {
  const dir = join(dataDir, "demos");
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const draft = join(dir, `.${randomUUID()}`);
  try {
    await writeFile(draft, `${JSON.stringify(result, null, 2)}\n`, { mode: 0o600, flag: "wx" });
    await rename(draft, join(dir, `${result.recipe}.json`));
  } finally {
    await rm(draft, { force: true });
  }
}

async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readSmallFile(path));
  } catch {
    return undefined; // it is missing, or another version wrote it
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isResult(value: unknown): value is DemoResult {
  if (!isObject(value)) return false;
  const texts = ["recipe", "version", "snapshot", "accelerator"];
  return (
    texts.every((key) => typeof value[key] === "string") &&
    typeof value["ok"] === "boolean" &&
    typeof value["at_unix"] === "number" &&
    typeof value["seconds"] === "number" &&
    isObject(value["facts"]) &&
    ["string", "undefined"].includes(typeof value["error"])
  );
}
