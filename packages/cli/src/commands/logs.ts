import { access } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract/wire";
import { defaultDataDir } from "@forkd/sdk/node";
import type { ServiceInfo } from "@forkd/contract";
import { wireOf, type Sandbox } from "@forkd/sdk";
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
import { ConsoleText } from "../terminal/console-text.ts";
import { formatBytes, type Column } from "../terminal/table.ts";

type Options = {
  daemon?: true;
  follow?: true;
  tail?: number;
  level?: string;
  raw?: true;
  service?: string;
  services?: true;
};

const defaultTail = 100;

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[id]", "Id or unique prefix of a sandbox, or a workspace")
    .option("--service <name>", "Print the output of a service of the recipe")
    .option("--services", "List the services and their state")
    .option("--daemon", "Print the daemon's log, even if no daemon runs")
    .option("-f, --follow", "Follow new output")
    .option("-n, --tail <lines>", "Start with the last lines (with --daemon: 100)", wholeNumber(1))
    .option("--raw", "Print control characters to a terminal as they are")
    .option("--level <level>", `Show only this level and above: ${logLevels.join(", ")}`)
    .addHelpText(
      "after",
      examples(
        "forkd logs 3f2a --tail 20",
        "forkd logs -f 3f2a      # until Ctrl-C",
        "forkd logs 3f2a --services",
        "forkd logs 3f2a --service redis-server --tail 20",
        "forkd logs --daemon -f --level info      # until Ctrl-C",
      ),
    )
    .action(toAction(logs));
}

async function logs(cli: Cli, options: Options, prefix: string | undefined): Promise<void> {
  if (options.level !== undefined && !logLevels.includes(options.level))
    throw usage(`--level must be one of ${logLevels.join(", ")}.`);
  if (options.daemon) {
    if (prefix !== undefined) throw usage("Give either an id or --daemon");
    if (options.raw) throw usage("--raw is for the console of a sandbox");
    if (options.service !== undefined || options.services) throw usage("--service and --services need an id");
    return daemonLog(cli, options);
  }
  if (prefix === undefined) throw usage("Give the id of a sandbox, or --daemon");
  if (options.level !== undefined) throw usage("--level needs --daemon");
  const sandbox = await cli.sandbox(prefix);
  if (options.services) return listServices(cli, sandbox, options);
  const { follow, tail, raw, service } = options;
  const how = { ...(follow && { follow }), ...(tail !== undefined && { tail }), signal: cli.signal };
  const chunks = sandbox.logs({ ...how, ...(service !== undefined && { service }) });
  if (cli.out.json) {
    const decoder = new TextDecoder();
    const source = service === undefined ? { type: "console" } : { type: "service", service };
    for await (const chunk of chunks)
      await cli.out.event({ ...source, data: decoder.decode(chunk, { stream: true }) });
  } else if (raw || !cli.out.isTerminal) {
    for await (const chunk of chunks) await cli.out.bytes(chunk);
  } else {
    // The guest writes the console, so it could control the terminal.
    const text = new ConsoleText();
    for await (const chunk of chunks) await cli.out.bytes(text.push(chunk));
    await cli.out.bytes(text.end());
  }
}

const serviceColumns: readonly Column<ServiceInfo>[] = [
  { title: "NAME", value: ({ name }) => name },
  {
    title: "STATE",
    value: ({ state, exit_code: code }) => (code === undefined ? state : `${state} (${code})`),
  },
  { title: "PID", value: ({ pid }) => String(pid), align: "right" },
  {
    title: "OUTPUT",
    value: ({ stdout_bytes: out, stderr_bytes: err }) => formatBytes(out + err),
    align: "right",
  },
  { title: "COMMAND", value: ({ command }) => command },
];

async function listServices(cli: Cli, sandbox: Sandbox, options: Options): Promise<void> {
  if (options.service !== undefined || options.follow || options.tail !== undefined || options.raw)
    throw usage("--services lists services; give it without other options");
  const services = wireOf<ServiceInfo[]>(await sandbox.services({ signal: cli.signal }));
  if (services.length > 0 || cli.out.json)
    cli.out.list(services, { columns: serviceColumns, name: ({ name }) => name });
  else cli.out.note("No services: the recipe of its snapshot starts none.");
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
