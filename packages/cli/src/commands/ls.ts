import type { SandboxInfo } from "@forkd/contract";
import { Option, type Command } from "commander";
import { collectLabelFilter, usage, wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { untilInterrupted } from "../terminal/interrupts.ts";
import { reasonColumns, sandboxColumns, wideColumns } from "../views/sandbox-table.ts";

export type ListOptions = {
  tag?: string;
  label?: string[];
  state?: SandboxInfo["state"];
  owner?: string;
  limit?: number;
  all?: true;
  watch?: true;
  wide?: true;
};

export function define(command: Command, toAction: ToAction): void {
  addListOptions(command)
    .addHelpText(
      "after",
      examples(
        "forkd ls",
        "forkd ls --label job=42",
        "forkd ls -q",
        "forkd ls --wide",
        "forkd ls --watch                                # until Ctrl-C",
        "forkd ls --limit 20",
      ),
    )
    .action(toAction(listSandboxes));
}

export function addListOptions(command: Command): Command {
  return addTableOption(command)
    .option("--tag <tag>", "List only the children of this snapshot")
    .option("--label <name=value>", "List only sandboxes with all labels (repeatable)", collectLabelFilter)
    .addOption(new Option("--state <state>", "List only this state").choices(["running", "paused", "dead"]))
    .option("--owner <name>", "List only sandboxes of this key")
    .option("--limit <count>", "List at most this many, the oldest first", wholeNumber(1))
    .option("-a, --all", "List dead sandboxes too")
    .option("--wide", "Also show owner, limits, timeouts, jail, network, secrets")
    .option("-w, --watch", "Watch for changes until q or Ctrl-C");
}

export async function listSandboxes(
  cli: Cli,
  { tag, label, state, owner, limit, all, watch, wide }: ListOptions,
): Promise<number | void> {
  const forkd = await cli.daemon();
  const filter = {
    ...(tag !== undefined && { tag }),
    ...(label !== undefined && { label }),
    ...(state !== undefined && { state }),
    ...(owner !== undefined && { owner }),
  };
  const isShown = (info: SandboxInfo) => all === true || state === "dead" || info.state !== "dead";
  if (watch) {
    if (limit !== undefined) throw usage("--limit cannot be used with --watch");
    const { watchSandboxes } = await import("../views/watch-sandboxes.ts");
    return untilInterrupted(cli.interrupts, () => watchSandboxes(cli, forkd, { filter, isShown }));
  }
  // Applies the limit after hiding dead sandboxes; the daemon would apply it before.
  // The plain answer: several hundred objects of the SDK would take longer than the rest.
  const found = await forkd.call("listSandboxes", filter, { signal: cli.signal });
  const sandboxes = found.filter(isShown).slice(0, limit);
  const columns = [...sandboxColumns(), ...(wide ? wideColumns() : []), ...reasonColumns(sandboxes)];
  cli.out.list(sandboxes, { columns, name: ({ id }) => id, wide });
  if (sandboxes.length === 0) cli.out.note("No sandboxes. Run `forkd fork TAG` to fork some.");
  const hidden = found.filter((info) => !isShown(info)).length;
  if (hidden > 0) cli.out.note(`${hidden} dead. Run \`forkd ls --all\` to see why.`);
}
