import { setTimeout as pause } from "node:timers/promises";
import type { PoolInfo, Stats } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import { Option, type Command } from "commander";
import { collectLabelFilter } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { untilInterrupted } from "../terminal/interrupts.ts";
import { rowsOf, sortKeys, topColumns, totalsOf, type SortKey, type TopRow } from "../views/top-table.ts";

type Options = { once?: true; sort: SortKey; tag?: string; label?: string[] };

/** Time between two measurements; the daemon measures at most once per second. */
const refreshMs = 2000;
const onceMs = 1200;

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .option("--once", "Print the table once and exit")
    .addOption(new Option("--sort <column>", "Sort the rows by this column").choices(sortKeys).default("cpu"))
    .option("--tag <tag>", "Show only the children of this snapshot")
    .option("--label <name=value>", "Show only sandboxes with this label (repeatable)", collectLabelFilter)
    .addHelpText(
      "after",
      "\nOn a terminal, q quits.\n" +
        examples(
          "forkd top",
          "forkd top --once --sort memory",
          "forkd top --json | jq --unbuffered -c '.sandboxes[0]'      # until Ctrl-C",
        ),
    )
    .action(toAction(top));
}

function top(cli: Cli, options: Options): Promise<number | void> {
  return untilInterrupted(cli.interrupts, () => show(cli, options));
}

async function show(cli: Cli, { once, sort, tag, label }: Options): Promise<void> {
  const forkd = await cli.daemon();
  const { signal } = cli;
  const filter = { ...(tag !== undefined && { tag }), ...(label !== undefined && { label }) };
  const measure = async () => wireOf<Stats>(await forkd.stats({ ...filter, signal }));
  const isLive = process.stdout.isTTY && !cli.out.json && !once && !cli.environment.dumbTerminal;
  const isOnce = once === true || (!isLive && !cli.out.json);
  const ready = async () => (isLive ? wireOf<PoolInfo>(await forkd.pool.get({ signal })) : undefined);
  let before = await measure();
  let pool = await ready();
  let rows: TopRow[] = rowsOf(before, undefined, sort);
  const render = () => `${totalsOf(rows, pool)}\n\n${cli.out.table(topColumns, rows)}`;
  const { liveScreen } = await import("../terminal/live-screen.ts");
  using screen = isLive ? liveScreen({ render, everyMs: 60_000, interrupts: cli.interrupts }) : undefined;
  screen?.draw();
  for (;;) {
    await pause(isOnce ? onceMs : refreshMs, undefined, { signal });
    const now = await measure();
    pool = await ready();
    rows = rowsOf(now, before, sort);
    before = now;
    if (cli.out.json && isOnce) return cli.out.document({ ...now, sandboxes: rows });
    if (cli.out.json) await cli.out.event({ ...now, sandboxes: rows });
    else if (isOnce) return await cli.out.bytes(cli.out.table(topColumns, rows));
    screen?.draw();
  }
}
