import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { AppError, isSandbox } from "@forkd/contract/wire";
import type { RequestOf } from "@forkd/contract";
import type { Command } from "commander";
import { collectEnv, collectLabel, parseLifetime, usage, wholeNumber } from "../arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { exitCodeOf, remedyOf } from "../exit-code.ts";
import { examples } from "../help.ts";
import { sandboxColumns } from "../sandbox-table.ts";
import { renderTable } from "../table.ts";

type Options = {
  tag?: string;
  n: number;
  env?: Record<string, string>;
  label?: Record<string, string>;
  ttl?: number;
  vary?: string;
};

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[tag]", "snapshot")
    .option("--tag <tag>", "snapshot, as an option")
    .option("-n, --n <count>", "number of children", wholeNumber(1, 1000), 1)
    .option("-e, --env <name=value>", "environment of every child (repeatable)", collectEnv)
    .option("-l, --label <name=value>", "label of every child (repeatable)", collectLabel)
    .option("--ttl <duration>", "kill the children after this time", parseLifetime)
    .option("--vary <file>", "JSON list with {env, values} for each child in turn; - reads stdin")
    .addHelpText(
      "after",
      examples(
        "forkd fork --tag python-numpy -n 10",
        "forkd fork --tag python-numpy -n 2 --ttl 10m --label job=42",
        `echo '[{"values":1},{"values":2}]' | forkd fork --tag python-numpy -n 2 --vary -`,
      ),
    )
    .action(toAction(fork));
}

async function fork(cli: Cli, options: Options, operand: string | undefined): Promise<number> {
  const tag = options.tag ?? operand;
  if (tag === undefined) throw usage("name a snapshot with --tag");
  if (operand !== undefined && operand !== tag) throw usage("the snapshot is named twice");
  const request: RequestOf<"fork"> = {
    snapshot_tag: tag,
    n: options.n,
    ...(options.env && { env: options.env }),
    ...(options.label && { labels: options.label }),
    ...(options.ttl !== undefined && { ttl_secs: options.ttl }),
    ...(options.vary !== undefined && { vary: await readVariations(options.vary) }),
  };
  const forkd = await cli.daemon();
  using progress = cli.progress(`Forking ${options.n} from ${tag}`);
  const entries = await forkd.call("fork", request, { signal: cli.signal });
  progress[Symbol.dispose]();

  const sandboxes = entries.filter((entry) => isSandbox(entry));
  const failures = entries.filter((entry) => "code" in entry);
  if (cli.out.json) cli.out.document(entries);
  else if (cli.out.quiet) for (const { id } of sandboxes) cli.out.line(id);
  else if (sandboxes.length > 0) await cli.out.bytes(renderTable(sandboxColumns(), sandboxes));
  const first = failures[0];
  if (first === undefined) return 0;
  if (!cli.out.json) {
    for (const failure of failures) cli.out.complain(`forkd: child ${failure.index}: ${failure.error}`);
    const remedy = remedyOf(first);
    if (remedy !== undefined) cli.out.complain(`  ${remedy}`);
  }
  return exitCodeOf(first.code);
}

async function readVariations(source: string): Promise<NonNullable<RequestOf<"fork">["vary"]>> {
  const content =
    source === "-" ? await text(process.stdin) : await readFile(source, "utf8").catch(cannotRead(source));
  try {
    const list: unknown = JSON.parse(content);
    if (!Array.isArray(list)) throw new TypeError("it is not a list");
    return list; // the daemon checks each entry
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new AppError("invalid_request", `Cannot use the variations of --vary: ${reason}`, { cause });
  }
}

function cannotRead(path: string): (cause: unknown) => never {
  return (cause) => {
    throw new AppError("file_not_found", `Cannot read "${path}"`, { cause });
  };
}
