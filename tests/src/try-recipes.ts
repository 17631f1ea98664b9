/**
 * Builds recipes in a fresh data directory, runs their demos and writes the results to recipes/results.json.
 *
 *   node tests/dist/try-recipes.js [--data-dir DIR] [NAME...]
 *
 * Without names it tries every recipe that has a demo. --data-dir keeps images between runs.
 */
import "./support/orphans.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { startDaemon, type TestDaemon } from "./support/daemon.ts";
import { cliPath, repository } from "./support/places.ts";

type Row = { name: string; demo: string | null; snapshot: { tag: string } };
type Result = { recipe: string; ok: boolean; seconds: number; build_seconds?: number; error?: string };
type Event = { type: string; message?: string; text?: string; stream?: string; result?: Result };

const resultsPath = join(repository, "recipes/results.json");
const say = (text: string) => process.stderr.write(`${text}\n`);

/** Runs the CLI. Calls `onEvent` for each line of its stdout. */
async function forkd(daemon: TestDaemon, args: readonly string[], onEvent: (line: string) => void) {
  const child = spawn(process.execPath, [cliPath, ...args, "--json"], {
    env: daemon.env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  createInterface({ input: child.stdout }).on("line", onEvent);
  const [code] = (await once(child, "close")) as [number | null];
  return code;
}

async function shelf(daemon: TestDaemon): Promise<Row[]> {
  let text = "";
  assert.equal(await forkd(daemon, ["recipes"], (line) => (text += line)), 0);
  return JSON.parse(text) as Row[];
}

/** Returns the result; a demo that leaves something behind has failed. */
async function tryOne(daemon: TestDaemon, { name, snapshot }: Row, names: string[]): Promise<Result> {
  const tags = async () => (await daemon.forkd.snapshots.list().all()).map(({ tag }) => tag);
  const before = await tags();
  let result: Result | undefined;
  await forkd(daemon, ["recipes", "demo", name], (line) => {
    const event = JSON.parse(line) as Event;
    if (event.type === "step") say(`    ${name}: ${event.message}`);
    if (event.type === "output") say(`    ${name}: ${event.text}`);
    if (event.type === "demo") result = event.result;
  });
  // The CLI has printed why.
  if (result === undefined)
    return { recipe: name, ok: false, seconds: 0, error: "it was not built or started" };
  const sandboxes = (await daemon.forkd.sandboxes.list().all()).map(({ id }) => id);
  // A build also makes the snapshots of the recipes that it starts from.
  const built = new Set([...before, snapshot.tag, ...names]);
  const extra = (await tags()).filter((tag) => !built.has(tag));
  const left = [...sandboxes, ...extra];
  if (left.length === 0) return result;
  await daemon.forkd.call("killAll", {});
  for (const tag of extra) await daemon.forkd.snapshots.remove(tag, { cascade: true }).catch(() => undefined);
  return { ...result, ok: false, error: `it left behind ${left.join(", ")}` };
}

/** Adds results to those of earlier runs; drops those of recipes that are gone. */
async function write(results: readonly Result[], names: readonly string[]): Promise<void> {
  const old = JSON.parse(await readFile(resultsPath, "utf8").catch(() => '{"results":[]}')) as {
    results: Result[];
  };
  const all = new Map([...old.results, ...results].map((result) => [result.recipe, result]));
  const kept = [...all.values()].filter(({ recipe }) => names.includes(recipe));
  kept.sort((a, b) => (a.recipe < b.recipe ? -1 : 1));
  await writeFile(resultsPath, `${JSON.stringify({ version: 1, results: kept }, null, 2)}\n`);
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "data-dir": { type: "string" } },
});
const dataDir = values["data-dir"];
await using daemon = await startDaemon(dataDir === undefined ? {} : { dataDir: resolve(dataDir) });
const all = await shelf(daemon);
const chosen = positionals.length === 0 ? all.filter(({ demo }) => demo !== null) : [];
for (const name of positionals) {
  const row = all.find((each) => each.name === name);
  assert.ok(row, `There is no recipe ${name}. Recipes: ${all.map((each) => each.name).join(", ")}`);
  chosen.push(row);
}
// A snapshot is removed after its last use, so that the disk holds only what is needed.
chosen.sort((a, b) => (a.snapshot.tag < b.snapshot.tag ? -1 : 1));
const results: Result[] = [];
const names = all.map(({ name }) => name);
for (const [index, row] of chosen.entries()) {
  say(`==> ${row.name}`);
  const result = await tryOne(daemon, row, names);
  results.push(result);
  say(`    ${row.name}: ${result.ok ? "ok" : `FAILED: ${result.error}`}, ${result.seconds.toFixed(1)} s`);
  if (result.seconds > 0) await write([result], names);
  if (chosen[index + 1]?.snapshot.tag !== row.snapshot.tag)
    // Snapshots of other recipes may be layers over it.
    await daemon.forkd.snapshots.remove(row.snapshot.tag).catch(() => undefined);
}
const failed = results.filter(({ ok }) => !ok).map(({ recipe }) => recipe);
say(failed.length === 0 ? `${results.length} ok` : `failed: ${failed.join(", ")}`);
process.exitCode = failed.length === 0 ? 0 : 1;
