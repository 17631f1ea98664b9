import type { BuildRequest } from "@forkd/sdk";
import type { Command } from "commander";
import { buildSnapshot } from "../guest/build-snapshot.ts";
import { absoluteImage, tagOfImage } from "../guest/image-name.ts";
import { findRecipe } from "../guest/recipes.ts";
import type { Cli, ToAction } from "../cli.ts";
import { collectEnv, collectLanguage, usage, wholeNumber } from "../options/arguments.ts";
import { examples } from "../options/help.ts";

type Options = ImageOptions & { image?: string; tag?: string; force?: true; cache: boolean };
type ImageOptions = {
  start?: true;
  readyPort?: number;
  memoryMib?: number;
  diskMib?: number;
  env?: Record<string, string>;
  language?: NonNullable<BuildRequest["languages"]>;
};

/** Options that a recipe has keys for. */
const imageOptions = [
  ["start", "--start"],
  ["readyPort", "--ready-port"],
  ["memoryMib", "--memory-mib"],
  ["diskMib", "--disk-mib"],
  ["env", "--env"],
  ["language", "--language"],
] as const satisfies [keyof ImageOptions, string][];

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[recipe]", "Directory with a recipe.json, that file, or a bundled recipe")
    .option("--image <image>", "Build from a container image instead of a recipe")
    .option("--tag <tag>", "Name the snapshot (default: the name of the recipe or image)")
    .option("--force", "Replace a snapshot that has this tag")
    .option("--no-cache", "Run every step again, with current packages")
    .option("--start", "Start ENTRYPOINT and CMD of the image as a service")
    .option("--ready-port <port>", "Wait until the started service accepts", wholeNumber(1, 65_535))
    .option("--memory-mib <mib>", "Set the guest memory", wholeNumber(64, 65_536))
    .option("--disk-mib <mib>", "Set the size of the root file system", wholeNumber(16, 1_048_576))
    .option("-e, --env <name=value>", "Set a variable for every command (repeatable)", collectEnv)
    .option(
      "--language <name[=code]>",
      "Warm up an interpreter: python or node (repeatable)",
      collectLanguage,
    )
    .addHelpText(
      "after",
      "\nAn image is a name in a registry, oci:PATH[:TAG] or docker-archive:PATH[:NAME:TAG].\n" +
        "From --start on the options need --image; a recipe has keys for them.\n" +
        examples(
          "forkd build python-numpy",
          "forkd build ./my-recipe --tag work --force",
          "forkd build python-numpy --force --no-cache      # with Debian's updates",
          "forkd build --image python:3.12-slim --language python",
          "forkd build --image docker-archive:./app.tar --tag app --start --ready-port 8080",
        ),
    )
    .action(toAction(build));
}

async function build(cli: Cli, options: Options, text: string | undefined): Promise<void> {
  const { tag, ...source } = await sourceOf(cli, options, text);
  await buildSnapshot(cli, {
    ...source,
    tag,
    force: options.force === true,
    ...(!options.cache && { noCache: true }),
  });
  if (!cli.out.json) cli.out.line(tag);
}

async function sourceOf(
  cli: Cli,
  options: Options,
  text: string | undefined,
): Promise<Omit<BuildRequest, "force" | "noCache">> {
  const { image } = options;
  if (image !== undefined) {
    if (text !== undefined) throw usage("Give either a recipe or --image");
    return imageRequest(options, image);
  }
  if (text === undefined) throw usage("Name a recipe, or give --image");
  const misplaced = imageOptions.find(([name]) => options[name] !== undefined);
  if (misplaced) throw usage(`${misplaced[1]} needs --image; a recipe has a key for it`);
  const recipe = await findRecipe(text, cli.environment.recipesDir);
  return { tag: options.tag ?? recipe.name, recipe: recipe.dir };
}

function imageRequest(options: Options, image: string): Omit<BuildRequest, "force" | "noCache"> {
  const tag = options.tag ?? tagOfImage(image);
  if (tag === undefined) throw usage("Name the snapshot with --tag");
  const { start, readyPort } = options;
  if (readyPort !== undefined && !start) throw usage("--ready-port needs --start");
  return {
    tag,
    image: absoluteImage(image),
    ...(start && { start: { readyPort } }),
    memoryMib: options.memoryMib,
    diskMib: options.diskMib,
    env: options.env,
    languages: options.language,
  };
}
