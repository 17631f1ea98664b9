/** Lists the shelf of recipes, shows one, and runs its demo. */
import { errorMessage } from "@forkd/contract/wire";
import type { SnapshotInfo } from "@forkd/contract";
import { wireOf, type Forkd } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { buildSnapshot } from "../guest/build-snapshot.ts";
import { parseLifetime, usage } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { readOwn, readReleased, writeOwn, type DemoResult } from "../shelf/results.ts";
import { runDemo } from "../shelf/run-demo.ts";
import { findEntry, readContents, readShelf, type ShelfEntry } from "../shelf/shelf.ts";
import { clean } from "../terminal/table.ts";
import { ownVersion } from "../version.ts";
import { printFacts } from "../views/facts.ts";
import { factsOfRecipe, recipeColumns, type RecipeRow } from "../views/recipe-facts.ts";

const defaultTimeoutSecs = 900;

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .enablePositionalOptions()
    .argument("[name]", "Recipe; without one, list the shelf")
    .addHelpText(
      "after",
      "\nA recipe describes a snapshot; a program uses the snapshot of a recipe. Most have a demo.\n" +
        examples(
          "forkd recipes",
          "forkd recipes python-numpy",
          "forkd recipes demo speculative-agent",
          "forkd recipes --json | jq -r '.[] | select(.demo != null) | .name'",
        ),
    )
    .action(toAction(recipes));
  addCommonOptions(command.command("demo").description("Run a demo; builds its snapshot if there is none"))
    .argument("<name>", "Recipe")
    .option("--tag <tag>", "Use this snapshot (default: the one of the recipe)")
    .option("--timeout <duration>", "Stop a demo that takes longer (default: 15m)", parseLifetime)
    .addHelpText(
      "after",
      "\nThe result is recorded in the data directory of the daemon. Exits with 1 if the demo fails.\n" +
        examples("forkd recipes demo speculative-agent --timeout 5m"),
    )
    .action(toAction(demo));
}

async function recipes(cli: Cli, _options: unknown, name: string | undefined): Promise<void> {
  const { recipesDir } = cli.environment;
  const shelf = name === undefined ? await readShelf(recipesDir) : [await findEntry(name, recipesDir)];
  const forkd = await cli.daemon();
  const [entry] = shelf;
  const rows = await rowsOf(cli, forkd, shelf);
  const [row] = rows;
  if (name === undefined || entry === undefined || row === undefined) {
    cli.out.list(rows, { columns: recipeColumns, name: (each) => each.name });
    return;
  }
  const contents = await readContents(entry);
  if (cli.out.json) return cli.out.document({ ...row, ...contents });
  printFacts(cli.out, factsOfRecipe(row, contents));
}

async function rowsOf(cli: Cli, forkd: Forkd, shelf: readonly ShelfEntry[]): Promise<RecipeRow[]> {
  const [snapshots, released, dataDir] = await Promise.all([
    forkd.snapshots.list({}, { signal: cli.signal }).all(),
    readReleased(cli.environment.recipesDir),
    localDataDir(cli, forkd),
  ]);
  const statusOf = (tag: string) => snapshots.find((snapshot) => snapshot.tag === tag)?.status ?? null;
  return Promise.all(
    shelf.map(async ({ name, kind, description, snapshot, demo: file }) => ({
      name,
      kind,
      description,
      snapshot: { tag: snapshot, status: statusOf(snapshot) },
      demo: file ?? null,
      last: (dataDir === undefined ? undefined : await readOwn(dataDir, name)) ?? null,
      released: released.get(name) ?? null,
    })),
  );
}

/** The daemon's data directory; undefined if it may be on another host. */
async function localDataDir(cli: Cli, forkd: Forkd): Promise<string | undefined> {
  if (cli.environment.url !== undefined) return undefined;
  return (await forkd.status({ signal: cli.signal })).dataDir;
}

type DemoOptions = { tag?: string; timeout?: number };

async function demo(cli: Cli, options: DemoOptions, name: string): Promise<number> {
  const entry = await findEntry(name, cli.environment.recipesDir);
  const { demo: file } = entry;
  if (file === undefined) throw usage(`The recipe ${name} has no demo`);
  const forkd = await cli.daemon();
  const { snapshot, buildSeconds } = await requireSnapshot(cli, forkd, { entry, tag: options.tag });
  const outcome = await runDemo({
    entry: { ...entry, demo: file },
    tag: snapshot.tag,
    variables: cli.environment.variables,
    timeoutSecs: options.timeout ?? defaultTimeoutSecs,
    signal: cli.signal,
    onLine: (stream, line) => void showLine(cli, stream, line),
  });
  const result: DemoResult = {
    recipe: name,
    at_unix: Math.round(Date.now() / 1000),
    version: ownVersion(),
    snapshot: snapshot.tag,
    accelerator: snapshot.accelerator,
    ...(buildSeconds !== undefined && { build_seconds: buildSeconds }),
    ...outcome,
  };
  await record(cli, forkd, result);
  if (cli.out.json) await cli.out.event({ type: "demo", result });
  else showResult(cli, result);
  return result.ok ? 0 : 1;
}

async function showLine(cli: Cli, stream: "stdout" | "stderr", line: string): Promise<void> {
  if (cli.out.json) await cli.out.event({ type: "output", stream, text: line });
  else await cli.out.bytes(`${clean(line)}\n`, stream);
}

function showResult(cli: Cli, { recipe, ok, seconds, facts, error }: DemoResult): void {
  const took = `in ${seconds.toFixed(1)} s`;
  if (ok) cli.out.line(`${cli.out.style("green", "ok")}: ${recipe} ${took}`);
  else cli.out.report(`${cli.out.style("red", "failed")}: ${recipe} ${took}: ${error ?? ""}`);
  for (const [name, value] of Object.entries(facts))
    cli.out.line(clean(`  ${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`));
}

type Needed = { readonly entry: ShelfEntry; readonly tag: string | undefined };
type Usable = { readonly snapshot: SnapshotInfo; readonly buildSeconds?: number };

/** The snapshot that the demo uses; one that was given is never built. */
async function requireSnapshot(cli: Cli, forkd: Forkd, { entry, tag }: Needed): Promise<Usable> {
  const wanted = tag ?? entry.snapshot;
  const all = await forkd.snapshots.list({}, { signal: cli.signal }).all();
  const found = all.find((snapshot) => snapshot.tag === wanted);
  if (tag !== undefined || (found !== undefined && found.status !== "failed"))
    return { snapshot: wireOf(await forkd.snapshots.ready(wanted, { signal: cli.signal })) };
  const recipe = entry.kind === "recipe" ? entry : await findEntry(wanted, cli.environment.recipesDir);
  const startedAt = performance.now();
  cli.out.note(`Building ${wanted}; later runs use it.`);
  const built = await buildSnapshot(cli, { tag: wanted, recipe: recipe.dir, force: found !== undefined });
  return { snapshot: wireOf(built), buildSeconds: Math.round(performance.now() - startedAt) / 1000 };
}

/** A result that cannot be recorded is still printed. */
async function record(cli: Cli, forkd: Forkd, result: DemoResult): Promise<void> {
  try {
    const dataDir = await localDataDir(cli, forkd);
    if (dataDir === undefined) cli.out.note("Did not record the result: FORKD_URL names the daemon.");
    else await writeOwn(dataDir, result);
  } catch (error) {
    cli.out.note(`Did not record the result: ${errorMessage(error)}`);
  }
}
