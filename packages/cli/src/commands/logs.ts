import { access } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract/wire";
import { defaultDataDir } from "@forkd/sdk/node";
import type { Command } from "commander";
import { usage, wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import {
  formatRecord,
  followRecords,
  isAtLeast,
  lastRecords,
  logLevels,
  type LogRecord,
} from "../daemon/log.ts";
import { examples } from "../options/help.ts";

type Options = { daemon?: true; follow?: true; tail?: number; level?: string };

const defaultTail = 100;

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[id]", "Id or unique prefix of a sandbox, or a workspace")
    .option("--daemon", "Print the daemon's log, even if no daemon runs")
    .option("-f, --follow", "Follow new output")
    .option("-n, --tail <lines>", "Start with the last lines (with --daemon: 100)", wholeNumber(1))
    .option("--level <level>", `Show only this level and above: ${logLevels.join(", ")}`)
    .addHelpText(
      "after",
      examples(
        "forkd logs 3f2a --tail 20",
        "forkd logs -f 3f2a      # until Ctrl-C",
        "forkd logs --daemon -f --level info      # until Ctrl-C",
      ),
    )
    .action(toAction(logs));
}

async function logs(cli: Cli, options: Options, prefix: string | undefined): Promise<void> {
  if (options.level !== undefined && !logLevels.includes(options.level))
    throw usage(`--level must be one of ${logLevels.join(", ")}.`);
  if (options.daemon) {
    if (prefix !== undefined) throw usage("give either an id or --daemon");
    return daemonLog(cli, options);
  }
  if (prefix === undefined) throw usage("missing required argument 'id' (or give --daemon)");
  if (options.level !== undefined) throw usage("--level needs --daemon");
  const sandbox = await cli.sandbox(prefix);
  const decoder = new TextDecoder();
  const { follow, tail } = options;
  const how = { ...(follow && { follow }), ...(tail !== undefined && { tail }), signal: cli.signal };
  for await (const chunk of sandbox.logs(how)) {
    if (cli.out.json) await cli.out.event({ type: "console", data: decoder.decode(chunk, { stream: true }) });
    else await cli.out.bytes(chunk);
  }
}

async function daemonLog(cli: Cli, { follow, tail = defaultTail, level = "debug" }: Options): Promise<void> {
  const path = await findLog(cli);
  const wanted = (record: LogRecord) => isAtLeast(record, level);
  const print = (record: LogRecord) =>
    cli.out.json ? cli.out.event(record) : cli.out.bytes(`${formatRecord(record)}\n`);
  const { records, end } = await lastRecords(path, tail, wanted);
  for (const record of records) await print(record);
  if (!follow) return;
  for await (const record of followRecords(path, end, cli.signal)) if (wanted(record)) await print(record);
  cli.signal.throwIfAborted();
}

/** The file that the settings name, or the one that `forkd up` uses. */
async function findLog(cli: Cli): Promise<string> {
  if (cli.environment.url !== undefined)
    throw new AppError("unsupported", "Cannot read the log of a daemon elsewhere: FORKD_URL is set", {
      remedy: advice("Run this on the daemon's host."),
    });
  const { localSettings } = await import("../daemon/local.ts");
  const { settings } = await localSettings(cli.environment.variables);
  const named = settings.find(({ name }) => name === "log_file")?.value;
  const path =
    typeof named === "string" && named !== "stderr"
      ? named
      : join(defaultDataDir(cli.environment.variables), "daemon.log");
  try {
    await access(path);
    return path;
  } catch (cause) {
    throw new AppError("file_not_found", `There is no log at ${path}`, {
      details: { path },
      remedy: advice(
        "Under systemd run `journalctl -u forkd`; otherwise set FORKD_LOG_FILE or FORKD_DATA_DIR.",
      ),
      cause,
    });
  }
}
