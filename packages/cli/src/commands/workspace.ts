import type { WorkspaceInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { collectEnv, collectLabel, parseLifetime } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { forEach } from "../terminal/for-each.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { addLimitOptions, readLimits, type LimitOptions } from "../options/limits.ts";
import { addNetworkOptions, readNetwork, type NetworkOptions } from "../options/network.ts";
import { formatAge, type Column } from "../terminal/table.ts";

type CreateOptions = LimitOptions &
  NetworkOptions & {
    snapshot: string;
    ttl?: number;
    idempotencyKey?: string;
    env?: Record<string, string>;
    label?: Record<string, string>;
  };

const columns: readonly Column<WorkspaceInfo>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "STATUS", value: ({ status }) => status },
  { title: "SNAPSHOT", value: ({ source_snapshot_tag }) => source_snapshot_tag },
  { title: "ID", value: ({ id }) => id, id: true },
  { title: "CREATED", value: ({ created_at_unix }) => formatAge(created_at_unix), drop: 1 },
  { title: "ACTIVE", value: ({ last_active_unix }) => formatAge(last_active_unix) },
];

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nA workspace is a sandbox that has a name. Verbs accept the name in place of the id.\n" +
        examples(
          "forkd workspace create dev --snapshot python-numpy",
          "forkd exec dev -- ls /srv",
          "forkd workspace suspend dev",
        ),
    );
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  addNetworkOptions(addLimitOptions(add("create", "Fork a sandbox and give it a name")))
    .argument("<name>", "Name of the workspace")
    .requiredOption("--snapshot <tag>", "Fork from this snapshot")
    .option("-e, --env <name=value>", "Set a variable (repeatable)", collectEnv)
    .option("-l, --label <name=value>", "Add a label (repeatable)", collectLabel)
    .option("--idempotency-key <key>", "Repeat safely: the same key gives the same answer")
    .option("--ttl <duration>", "Suspend it after this time (--on-timeout kill: delete)", parseLifetime)
    .addHelpText("after", examples("forkd workspace create dev --snapshot python-numpy"))
    .action(toAction(create));
  addTableOption(add("ls", "List workspaces"))
    .addHelpText("after", examples("forkd workspace ls", "forkd workspace ls -q"))
    .action(toAction(ls));
  add("suspend", "Save a workspace to disk and stop its machine")
    .argument("<name>", "Workspace")
    .addHelpText("after", examples("forkd workspace suspend dev"))
    .action(toAction(suspend));
  add("resume", "Resume a suspended workspace")
    .argument("<name>", "Workspace")
    .addHelpText("after", examples("forkd workspace resume dev"))
    .action(toAction(resume));
  add("delete", "Kill a workspace and remove its saved state")
    .argument("<name>", "Workspace")
    .addHelpText("after", examples("forkd workspace delete dev"))
    .action(toAction(remove));
}

async function create(cli: Cli, options: CreateOptions, name: string): Promise<void> {
  const { snapshot, env, label, ttl, idempotencyKey } = options;
  const settings = { ...readLimits(options), ...readNetwork(options) };
  const forkd = await cli.daemon();
  using progress = cli.progress(`Forking ${name} from ${snapshot}`);
  const workspace = await forkd.workspaces.create(name, snapshot, {
    ...{ env, labels: label, ttlMs: ttl === undefined ? undefined : ttl * 1000, ...settings },
    ...{ idempotencyKey, signal: cli.signal },
  });
  progress[Symbol.dispose]();
  show(cli, wireOf(workspace));
}

async function ls(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const found = await forkd.workspaces.list({}, { signal: cli.signal }).all();
  const workspaces = wireOf<WorkspaceInfo[]>(found);
  cli.out.list(workspaces, { columns, name: ({ name }) => name });
  if (workspaces.length === 0)
    cli.out.note("No workspaces. Run `forkd workspace create NAME --snapshot TAG` to create one.");
}

async function suspend(cli: Cli, _options: unknown, name: string): Promise<void> {
  const forkd = await cli.daemon();
  using progress = cli.progress(`Saving ${name} to disk`);
  const workspace = await forkd.workspaces.suspend(name, { signal: cli.signal });
  progress[Symbol.dispose]();
  show(cli, wireOf(workspace));
}

async function resume(cli: Cli, _options: unknown, name: string): Promise<void> {
  const forkd = await cli.daemon();
  using progress = cli.progress(`Resuming ${name}`);
  const workspace = await forkd.workspaces.resume(name, { signal: cli.signal });
  progress[Symbol.dispose]();
  show(cli, wireOf(workspace));
}

async function remove(cli: Cli, _options: unknown, name: string): Promise<number> {
  const forkd = await cli.daemon();
  using _progress = cli.progress(`Removing ${name}`);
  return forEach(cli.out, { items: [name], name: "name", done: "deleted" }, () =>
    forkd.workspaces.remove(name, { signal: cli.signal }),
  );
}

function show(cli: Cli, workspace: WorkspaceInfo): void {
  const { name, source_snapshot_tag: tag, lost } = workspace;
  if (lost?.since === "created")
    cli.out.report(
      `forkd: Workspace ${name} starts again from ${tag}: its machine ended before it was ever suspended (${lost.reason})`,
    );
  else if (lost)
    cli.out.report(
      `forkd: Workspace ${name} is as it was when it was last suspended: its machine ended (${lost.reason})`,
    );
  if (cli.out.json) return cli.out.document(workspace);
  cli.out.line(workspace.name);
  cli.out.note(`Workspace ${workspace.name} is ${workspace.status}; its sandbox is ${workspace.id}.`);
}
