/** Options and output for the children of a snapshot; shared by `fork` and `branch`. */
import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { AppError, errorMessage, isSandbox } from "@forkd/contract/wire";
import type { ForkEntry } from "@forkd/contract";
import type { ForkOptions, Variation } from "@forkd/sdk";
import type { Command } from "commander";
import { collectEnv, collectLabel, parseLifetime } from "./arguments.ts";
import type { Cli } from "../cli.ts";
import { addLimitOptions, readLimits, type LimitOptions } from "./limits.ts";
import { addTableOption } from "./help.ts";
import { addNetworkOptions, readNetwork, type NetworkOptions } from "./network.ts";
import { exitCodeOf } from "../terminal/exit-code.ts";
import { remedyOf } from "../terminal/remedies.ts";
import { sandboxColumns } from "../views/sandbox-table.ts";
import { unreadable } from "../terminal/unreadable.ts";

export type ChildOptions = LimitOptions &
  NetworkOptions & {
    env?: Record<string, string>;
    label?: Record<string, string>;
    ttl?: number;
    vary?: string;
    idempotencyKey?: string;
  };
type ChildSettings = Pick<ForkOptions, "env" | "labels" | "ttlMs" | "vary"> &
  ReturnType<typeof readLimits> &
  ReturnType<typeof readNetwork>;

export function addChildOptions(command: Command): Command {
  return addTableOption(addSandboxOptions(command)).option(
    "--idempotency-key <key>",
    "Repeat safely: the same key gives the same answer",
  );
}

/** The options of every verb that forks, with its environment, labels, limits and network. */
export function addSandboxOptions(command: Command): Command {
  return addNetworkOptions(addLimitOptions(command))
    .option("-e, --env <name=value>", "Set a variable for every child (repeatable)", collectEnv)
    .option("-l, --label <name=value>", "Label every child (repeatable)", collectLabel)
    .option("--ttl <duration>", "Kill or pause the children after this time", parseLifetime)
    .option("--vary <file>", "Read {env, values} per child from a JSON file; - is stdin");
}

/** What the options set. */
export async function readChildSettings(options: ChildOptions): Promise<ChildSettings> {
  return {
    ...(options.env && { env: options.env }),
    ...(options.label && { labels: options.label }),
    ...(options.ttl !== undefined && { ttlMs: options.ttl * 1000 }),
    ...readLimits(options),
    ...readNetwork(options),
    ...(options.vary !== undefined && { vary: await readVariations(options.vary) }),
  };
}

/**
 * Prints the children as a table (ids with --quiet) and the failures. Prints nothing with --json: the answer
 * has everything. Resolves to the exit code of the first failure.
 */
export async function showChildren(cli: Cli, entries: readonly ForkEntry[]): Promise<number> {
  const sandboxes = entries.filter((entry) => isSandbox(entry));
  const failures = entries.filter((entry) => "code" in entry);
  const [first] = failures;
  const exitCode = first === undefined ? 0 : exitCodeOf(first.code);
  if (cli.out.json) return exitCode;
  if (cli.out.quiet) for (const { id } of sandboxes) cli.out.line(id);
  else if (sandboxes.length > 0) await cli.out.bytes(cli.out.table(sandboxColumns(), sandboxes));
  for (const failure of failures) cli.out.report(`forkd: child ${failure.index}: ${failure.error}`);
  const remedy = first && remedyOf(first);
  if (remedy !== undefined) cli.out.report(`  ${remedy}`);
  return exitCode;
}

async function readVariations(source: string): Promise<Variation[]> {
  const content =
    source === "-" ? await text(process.stdin) : await readFile(source, "utf8").catch(cannotRead(source));
  try {
    const list: unknown = JSON.parse(content);
    if (!Array.isArray(list)) throw new TypeError("it is not a list");
    return list; // the daemon checks each entry
  } catch (cause) {
    const reason = errorMessage(cause);
    throw new AppError("invalid_request", `Cannot use the variations of --vary: ${reason}`, { cause });
  }
}

function cannotRead(path: string): (cause: unknown) => never {
  return (cause) => {
    throw unreadable(path, cause);
  };
}
