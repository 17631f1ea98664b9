import type { Command } from "commander";
import { buildSnapshot } from "../guest/build-snapshot.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { findRecipe } from "../guest/recipes.ts";

type Options = { tag?: string; force?: true; cache: boolean };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<recipe>", "Directory with a recipe.json, that file, or a bundled recipe")
    .option("--tag <tag>", "Name the snapshot (default: the name of the recipe)")
    .option("--force", "Replace a snapshot that has this tag")
    .option("--no-cache", "Run every step again, with current packages")
    .addHelpText(
      "after",
      examples(
        "forkd build python-numpy",
        "forkd build ./my-recipe --tag work --force",
        "forkd build python-numpy --force --no-cache      # with Debian's updates",
      ),
    )
    .action(toAction(build));
}

async function build(cli: Cli, options: Options, text: string): Promise<void> {
  const recipe = await findRecipe(text, cli.environment.recipesDir);
  const tag = options.tag ?? recipe.name;
  await buildSnapshot(cli, {
    tag,
    recipe: recipe.dir,
    force: options.force === true,
    ...(!options.cache && { noCache: true }),
  });
  if (!cli.out.json) cli.out.line(tag);
}
