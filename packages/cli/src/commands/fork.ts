import type { ForkEntry } from "@forkd/contract";
import { plural } from "@forkd/contract/wire";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { usage, wholeNumber } from "../options/arguments.ts";
import { addChildOptions, readChildSettings, showChildren, type ChildOptions } from "../options/children.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

type Options = ChildOptions & { tag?: string; n: number };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[tag]", "Snapshot")
    .option("--tag <tag>", "Fork from this snapshot")
    .option("-n, --n <count>", "Fork this many children", wholeNumber(1, 1000), 1);
  addChildOptions(command)
    .addHelpText(
      "after",
      examples(
        "forkd fork --tag python-numpy -n 3",
        "forkd fork --tag python-numpy -n 2 --ttl 10m --label job=42",
        "forkd fork python-numpy --allow api.example.com:443 --allow preset:pypi",
        `echo '[{"values":1},{"values":2}]' | forkd fork --tag python-numpy -n 2 --vary -`,
      ),
    )
    .action(toAction(fork));
}

async function fork(cli: Cli, options: Options, operand: string | undefined): Promise<number> {
  const tag = options.tag ?? operand;
  if (tag === undefined) throw usage("Give the tag of a snapshot");
  if (operand !== undefined && operand !== tag) throw usage("Give only one snapshot");
  const settings = await readChildSettings(options);
  const forkd = await cli.daemon();
  using progress = cli.progress(`Forking ${plural(options.n, "child", "children")} from ${tag}`);
  const { idempotencyKey } = options;
  const children = await forkd.fork(tag, options.n, { ...settings, idempotencyKey, signal: cli.signal });
  progress[Symbol.dispose]();
  const entries = wireOf<ForkEntry[]>(children);
  if (cli.out.json) cli.out.document(entries);
  return showChildren(cli, entries);
}
