import type { BranchMode } from "@forkd/contract";
import { Option, type Command } from "commander";
import { usage, wholeNumber } from "../options/arguments.ts";
import { branchSandbox } from "../views/branch-summary.ts";
import { addChildOptions, readChildSettings, type ChildOptions } from "../options/children.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { readLimits } from "../options/limits.ts";

type Options = ChildOptions & { tag?: string; mode?: BranchMode; wait: boolean; n?: number };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "sandbox or workspace; a unique beginning of an id is enough")
    .option("--tag <tag>", "name of the snapshot (default: made from the sandbox and the time)")
    .addOption(
      new Option(
        "--mode <mode>",
        "live: written after the sandbox runs again; diff: written while it is paused; full: without a parent (default: live)",
      ).choices(["full", "diff", "live"]),
    )
    .option("--no-wait", "return as soon as the sandbox runs again")
    .option("-n, --n <count>", "children to fork from the snapshot", wholeNumber(1, 1000));
  addChildOptions(command)
    .addHelpText(
      "after",
      "\nThe sandbox goes on. The tag of the snapshot goes to stdout, with -n the children too.\n" +
        examples(
          "forkd branch 3f2a",
          "forkd branch 3f2a --tag before-refactor --no-wait",
          "forkd branch 3f2a --tag fan -n 5 --ttl 10m",
        ),
    )
    .action(toAction(branch));
}

async function branch(cli: Cli, options: Options, prefix: string): Promise<number> {
  const { tag, mode, wait, n, env, label, ttl, vary } = options;
  const forChildren = [env, label, ttl, vary, ...Object.values(readLimits(options))];
  if (n === undefined && forChildren.some((value) => value !== undefined))
    throw usage("--env, --label, --ttl, --vary, limits and timeouts are for children; say how many with -n");
  if (n !== undefined && !wait)
    throw usage("-n does not go with --no-wait: children need the whole snapshot");
  const request = {
    ...(tag !== undefined && { tag }),
    ...(mode !== undefined && { mode }),
    ...(!wait && { wait }),
    ...(n !== undefined && { n }),
    ...(await readChildSettings(options)),
  };
  return branchSandbox(cli, prefix, request, options.idempotencyKey);
}
