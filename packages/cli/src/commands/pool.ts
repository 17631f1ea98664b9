import type { PoolInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { wholeNumber } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import type { Column } from "../terminal/table.ts";

type Row = PoolInfo["snapshots"][number];

const columns: readonly Column<Row>[] = [
  { title: "SNAPSHOT", value: ({ tag }) => tag },
  { title: "READY", value: ({ ready }) => String(ready) },
  { title: "MAKING", value: ({ making }) => String(making), drop: 1 },
  { title: "WANTED", value: ({ wanted }) => String(wanted) },
  { title: "SIZE", value: ({ is_set }) => (is_set ? "set" : "automatic") },
  { title: "MIB EACH", value: ({ child_mib }) => String(child_mib), drop: 2 },
];

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nA fork takes a ready child in milliseconds. How many wait follows from what forks asked for at once in\n" +
        "the last minutes, within the setting pool_memory_percent; `set` keeps a fixed number.\n" +
        examples("forkd pool", "forkd pool set python-numpy --ready 4", "forkd pool unset python-numpy"),
    )
    .action(toAction(show));
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  add("set", "Keep this many children of a snapshot ready")
    .argument("<tag>", "Snapshot")
    .requiredOption("--ready <count>", "Number of ready children, 0 for none", wholeNumber(0, 1000))
    .addHelpText("after", examples("forkd pool set python-numpy --ready 4"))
    .action(toAction(set));
  add("unset", "Let demand decide the number again")
    .argument("<tag>", "Snapshot")
    .addHelpText("after", examples("forkd pool unset python-numpy"))
    .action(toAction(unset));
}

async function show(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  print(cli, wireOf<PoolInfo>(await forkd.pool.get({ signal: cli.signal })));
}

async function set(cli: Cli, { ready }: { ready: number }, tag: string): Promise<void> {
  const forkd = await cli.daemon();
  print(cli, wireOf<PoolInfo>(await forkd.pool.set(tag, ready, { signal: cli.signal })));
}

async function unset(cli: Cli, _options: unknown, tag: string): Promise<void> {
  const forkd = await cli.daemon();
  print(cli, wireOf<PoolInfo>(await forkd.pool.set(tag, null, { signal: cli.signal })));
}

function print(cli: Cli, pool: PoolInfo): void {
  if (cli.out.json) return cli.out.document(pool);
  cli.out.list(pool.snapshots, { columns, name: ({ tag }) => tag });
  if (pool.budget_mib === 0)
    cli.out.note("The pool is off. Run `forkd config set pool_memory_percent 10` and restart the daemon.");
  else if (pool.snapshots.length === 0) cli.out.note("No children are ready. The pool fills after a fork.");
  else cli.out.note(`Ready children use about ${pool.used_mib} of ${pool.budget_mib} MiB.`);
}
