import { AppError, similarNames } from "@forkd/contract/wire";
import type { Tree } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { lineageOf, renderTree, tagsOf } from "../views/lineage.ts";

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("[tag]", "Show only this snapshot, its ancestors and what is below it")
    .addHelpText("after", examples("forkd tree", "forkd tree python-numpy", "forkd tree --json"))
    .action(toAction(tree));
}

async function tree(cli: Cli, _options: unknown, tag: string | undefined): Promise<void> {
  const forkd = await cli.daemon();
  const all = wireOf<Tree>(await forkd.tree({ signal: cli.signal }));
  const lineage = tag === undefined ? all : requireLineage(all, tag);
  if (cli.out.json) return cli.out.document(lineage);
  const { quiet, width } = cli.out;
  const lines = quiet ? tagsOf(lineage) : renderTree(lineage, { ascii: !cli.environment.unicode, width });
  for (const line of lines) cli.out.line(line);
  if (lines.length === 0) cli.out.note("No snapshots. Run `forkd build python-numpy` to build one.");
}

function requireLineage(all: Tree, tag: string): Tree {
  const lineage = lineageOf(all, tag);
  if (lineage !== undefined) return lineage;
  const tags = all.snapshots.map((each) => each.tag);
  throw new AppError("snapshot_not_found", `Cannot find snapshot "${tag}"`, {
    details: { tag, ...similarNames(tag, tags) },
    remedy: { action: "list_snapshots" },
  });
}
