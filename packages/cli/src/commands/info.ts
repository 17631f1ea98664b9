import { AppError, sandboxIdPattern } from "@forkd/contract/wire";
import type { ExecInfo, SandboxInfo, SandboxStats, SnapshotDetail, WorkspaceInfo } from "@forkd/contract";
import { wireOf, type Forkd } from "@forkd/sdk";
import { Option, type Command } from "commander";
import { usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { commandColumns } from "../views/command-table.ts";
import { printFacts } from "../views/facts.ts";
import { describeSandbox, type SandboxDetail } from "../views/sandbox-facts.ts";
import { describeSnapshot } from "../views/snapshot-facts.ts";

type Kind = "snapshot" | "sandbox" | "workspace";
type Options = { type?: Kind; verify?: true };

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<name>", "Tag of a snapshot, id of a sandbox, or a workspace")
    .addOption(
      new Option("--type <kind>", "Say what the name is").choices(["snapshot", "sandbox", "workspace"]),
    )
    .option("--verify", "Read all files of a snapshot and compare their digests")
    .addHelpText(
      "after",
      "\nA name that fits several is a snapshot, then a workspace, then the beginning of an id.\n" +
        examples(
          "forkd info python-numpy",
          "forkd info python-numpy --verify",
          "forkd info 3f2a",
          "forkd info 3f2a --type sandbox --json",
        ),
    )
    .action(toAction(info));
}

async function info(cli: Cli, options: Options, name: string): Promise<void> {
  const { type, verify } = options;
  const forkd = await cli.daemon();
  using progress = cli.progress(`Reading ${name}`);
  const isSnapshot = type === "snapshot" || (type === undefined && !sandboxIdPattern.test(name));
  const shown =
    isSnapshot && (await showSnapshot(cli, forkd, { name, verify, mayBeOther: type === undefined }));
  if (shown) return;
  if (verify) throw usage("--verify is for snapshots");
  const detail = await sandboxDetail(cli, forkd, { name, type });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.document(detail);
  printFacts(cli.out, describeSandbox(detail));
  const { commands } = detail;
  if (commands !== null && commands.length > 0) {
    cli.out.line("");
    cli.out.rows(commandColumns, commands);
  }
}

type Asked = { name: string; verify: true | undefined; mayBeOther: boolean };

/** False if no snapshot has the name, but a sandbox or a workspace does. */
async function showSnapshot(cli: Cli, forkd: Forkd, { name, verify, mayBeOther }: Asked): Promise<boolean> {
  const { signal } = cli;
  try {
    const detail = wireOf<SnapshotDetail>(await forkd.snapshots.info(name, { verify, signal }));
    if (cli.out.json) cli.out.document(detail);
    else printFacts(cli.out, describeSnapshot(detail));
    if (mayBeOther && (await forkd.workspaces.list({}, { signal }).all()).some((each) => each.name === name))
      cli.out.note(`A workspace has that name too. Run \`forkd info ${name} --type workspace\` to see it.`);
    return true;
  } catch (error) {
    const isAbsent = error instanceof AppError && isNoSnapshot(error.code);
    if (!isAbsent || !mayBeOther) throw error;
    const [found] = await cli.findSandboxes(forkd, [name]);
    if (found === undefined) throw error;
    if ("error" in found) throw found.error.code === "sandbox_not_found" ? error : found.error;
    return false;
  }
}

/** A workspace may have a name that no snapshot can have. */
function isNoSnapshot(code: string): boolean {
  return code === "snapshot_not_found" || code === "invalid_request";
}

async function sandboxDetail(
  cli: Cli,
  forkd: Forkd,
  { name, type }: { name: string; type: Kind | undefined },
): Promise<SandboxDetail> {
  const { signal } = cli;
  const workspace = type === "workspace" ? await workspaceOf(forkd, name, signal) : undefined;
  const [id = name] = workspace ? [workspace.id] : await cli.sandboxIds(forkd, [name]);
  const sandbox = await forkd.sandboxes.get(id, { signal });
  const own = wireOf<SandboxInfo>(sandbox);
  const [stats, ancestors, branches, commands] = await Promise.all([
    forkd.stats({ tag: own.snapshot_tag, signal }),
    ancestorsOf(forkd, own.snapshot_tag, signal),
    forkd.snapshots.list({ branchedFrom: id }, { signal }).all(),
    // A list of commands would resume a paused sandbox.
    own.state === "running" ? sandbox.commands.list({ signal }) : null,
  ]);
  return {
    ...own,
    workspace_info: workspace ?? (await workspaceOf(forkd, own.workspace, signal)),
    stats: wireOf<SandboxStats | undefined>(stats.sandboxes.find((each) => each.id === id)) ?? null,
    ancestors,
    branches: branches.map(({ tag }) => tag),
    commands: wireOf<ExecInfo[] | null>(commands),
  };
}

async function workspaceOf(
  forkd: Forkd,
  name: string | undefined,
  signal: AbortSignal,
): Promise<WorkspaceInfo | null> {
  return name === undefined ? null : wireOf(await forkd.workspaces.get(name, { signal }));
}

async function ancestorsOf(forkd: Forkd, tag: string, signal: AbortSignal): Promise<string[] | null> {
  try {
    return (await forkd.snapshots.info(tag, { signal })).ancestors;
  } catch (error) {
    if (error instanceof AppError && error.code === "snapshot_not_found") return null;
    throw error;
  }
}
