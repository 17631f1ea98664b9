import type { BranchMode } from "@forkd/contract";
import { Option, type Command } from "commander";
import { usage, wholeNumber } from "../options/arguments.ts";
import { branchSandbox } from "../views/branch-summary.ts";
import { addChildOptions, readChildSettings, type ChildOptions } from "../options/children.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { readLimits } from "../options/limits.ts";
import { readNetwork } from "../options/network.ts";

type Options = ChildOptions & { tag?: string; mode?: BranchMode; wait: boolean; n?: number };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .option("--tag <tag>", "Name the snapshot (default: sandbox and time)")
    .addOption(
      new Option("--mode <mode>", "Set how memory is saved (default: live)").choices([
        "full",
        "diff",
        "live",
      ]),
    )
    .option("--no-wait", "Return as soon as the sandbox runs again")
    .option("-n, --n <count>", "Fork this many children from the snapshot", wholeNumber(1, 1000));
  addChildOptions(command)
    .option("--no-secrets", "Give the children none of the secrets of the sandbox")
    .addHelpText(
      "after",
      "\nThe sandbox continues. Mode live writes memory after the sandbox runs again, diff while it is paused;\n" +
        "full is like live, but the snapshot has no parent. The tag and the children go to stdout.\n" +
        examples(
          "forkd branch 3f2a",
          "forkd branch 3f2a --tag before-refactor --no-wait",
          "forkd branch 3f2a --tag fan -n 5 --ttl 10m",
          "forkd branch 3f2a -n 2 --no-secrets --network none",
        ),
    )
    .action(toAction(branch));
}

async function branch(cli: Cli, options: Options, prefix: string): Promise<number> {
  const { tag, mode, wait, n, env, label, ttl, vary } = options;
  const forChildren = [
    ...[env, label, ttl, vary],
    ...Object.values({ ...readLimits(options), ...readNetwork(options) }),
  ];
  if (n === undefined && forChildren.some((value) => value !== undefined))
    throw usage("--env, --label, --ttl, --vary, network, limits and timeouts are for children. Give -n too");
  if (n !== undefined && !wait)
    throw usage("-n cannot be used with --no-wait: children need the whole snapshot");
  const request = {
    ...(tag !== undefined && { tag }),
    ...(mode !== undefined && { mode }),
    ...(!wait && { wait }),
    ...(n !== undefined && { n }),
    ...(await readChildSettings(options)),
    idempotencyKey: options.idempotencyKey,
  };
  return branchSandbox(cli, prefix, request);
}
