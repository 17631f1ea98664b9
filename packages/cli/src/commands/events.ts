import { eventTypes } from "@forkd/contract/wire";
import type { EventType, ForkdEvent } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import { InvalidArgumentError, type Command } from "commander";
import { collectLabelFilter, collectText } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { untilInterrupted } from "../terminal/interrupts.ts";
import type { Output } from "../terminal/output.ts";
import { clean } from "../terminal/table.ts";
import { allowCommand, describeDenial } from "../views/network-log.ts";

type TypeFilter = EventType | "sandbox.*" | "snapshot.*" | "network.*" | "port.*";
type Options = { type?: TypeFilter[]; sandbox?: string; tag?: string; label?: string[]; after?: string };

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .option("--type <type>", "Show only this type, or all such as sandbox.* (repeatable)", collectType)
    .option("--sandbox <id>", "Show only events of this sandbox or workspace")
    .option("--tag <tag>", "Show only events of this snapshot and its sandboxes")
    .option("--label <name=value>", "Show only sandboxes with this label (repeatable)", collectLabelFilter)
    .option("--after <event>", "Start after the event with this id")
    .addHelpText(
      "after",
      `\nTypes: ${eventTypes.join(", ")}\n${examples(
        "forkd events                                    # until Ctrl-C",
        "forkd events --json --type 'sandbox.*' | jq --unbuffered -r .sandbox_id      # until Ctrl-C",
        "forkd events --sandbox 3f2a --type sandbox.died      # until Ctrl-C",
        "forkd events --type network.denied      # until Ctrl-C",
      )}`,
    )
    .action(toAction(events));
}

function collectType(text: string, previous?: TypeFilter[]): TypeFilter[] {
  const known: readonly string[] = [...eventTypes, "sandbox.*", "snapshot.*", "network.*", "port.*"];
  for (const name of text.split(","))
    if (!known.includes(name)) throw new InvalidArgumentError(`It must be one of: ${known.join(", ")}.`);
  return collectText(text, previous) as TypeFilter[]; // checked above
}

function events(cli: Cli, options: Options): Promise<number | void> {
  return untilInterrupted(cli.interrupts, () => follow(cli, options));
}

async function follow(cli: Cli, { type, sandbox, tag, label, after }: Options): Promise<void> {
  const forkd = await cli.daemon();
  const [id] = sandbox === undefined ? [] : await cli.sandboxIds(forkd, [sandbox]);
  const stream = forkd.events({ types: type, sandbox: id, tag, labels: label, after, signal: cli.signal });
  for await (const event of stream) {
    if (cli.out.json) await cli.out.event(wireOf(event));
    else cli.out.line(describe(cli.out, wireOf(event)));
  }
}

const typeWidth = Math.max(...eventTypes.map(({ length }) => length));
const wholeId = `sb-${"0".repeat(24)}`;

/** Columns have the same width in every line: a stream has no last line to measure. */
function describe(out: Output, event: ForkdEvent): string {
  const { at_unix, type, sandbox_id, tag, port, reason, sandbox, network } = event;
  const command = allowCommand(out.id(sandbox_id ?? ""), network?.suggestion);
  const parts = [
    new Date(at_unix * 1000).toISOString(),
    type.padEnd(typeWidth),
    (sandbox_id === undefined ? "-" : out.id(sandbox_id)).padEnd(out.id(wholeId).length),
    tag ?? "-",
    ...(port === undefined ? [] : [`port=${port}`]),
    ...(sandbox?.workspace === undefined ? [] : [`workspace=${sandbox.workspace}`]),
    ...(network === undefined ? [] : [describeDenial(network)]),
    ...(command === undefined ? [] : [`to allow: ${command}`]),
    // "killed" says no more than the type.
    ...(reason === undefined || type.endsWith(`.${reason}`) ? [] : [`(${reason})`]),
  ];
  return clean(parts.join("  "));
}
