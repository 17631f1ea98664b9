import { resolve } from "node:path";
import type { BuildRequest } from "@forkd/sdk";
import type { Command } from "commander";
import {
  collectEnv,
  collectLanguage,
  collectText,
  parseLifetime,
  usage,
  wholeNumber,
} from "../options/arguments.ts";
import { branchSandbox } from "../views/branch-summary.ts";
import { buildSnapshot } from "../guest/build-snapshot.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

type Options = BuildOptions & { fromSandbox?: string; diff?: true; live?: true; wait: boolean };
type BuildOptions = {
  tag?: string;
  rootfs?: string;
  kernel?: string;
  modules?: string;
  memoryMib?: number;
  vcpus?: number;
  diskMib?: number;
  env?: Record<string, string>;
  run?: string[];
  language?: NonNullable<BuildRequest["languages"]>;
  bootWait?: number;
  force?: true;
};

/** Options that apply only to a build. */
const buildOptions = [
  "rootfs",
  "kernel",
  "modules",
  "memoryMib",
  "vcpus",
  "diskMib",
  "env",
  "run",
  "language",
  "bootWait",
  "force",
] as const satisfies (keyof BuildOptions)[];

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--tag <tag>", "Name the snapshot")
    .option("--rootfs <path>", "Use an ext4 image, a directory, or a tar (.gz, .xz, .zst)")
    .option("--kernel <path>", "Boot this Linux kernel (default: Debian's cloud kernel)")
    .option("--modules <dir>", "Use modules of that kernel (default: drivers are built in)")
    .option("--memory-mib <mib>", "Set the guest memory", wholeNumber(64, 65_536))
    .option("--vcpus <count>", "Set the number of virtual processors", wholeNumber(1, 64))
    .option("--disk-mib <mib>", "Set the size of the root file system", wholeNumber(16, 1_048_576))
    .option("-e, --env <name=value>", "Set a variable for every command (repeatable)", collectEnv)
    .option("--run <command>", "Run a shell command before the snapshot (repeatable)", collectText)
    .option(
      "--language <name[=code]>",
      "Warm up an interpreter: python or node (repeatable)",
      collectLanguage,
    )
    .option("--boot-wait <duration>", "Wait at most this long for the agent", parseLifetime)
    .option("--force", "Replace a snapshot that has this tag")
    .option("--from-sandbox <id>", "Snapshot a running sandbox instead, like `forkd branch`")
    .option("--diff", "Write memory while the sandbox is paused")
    .option("--live", "Write memory after the sandbox runs again (default)")
    .option("--no-wait", "Return as soon as the sandbox runs again")
    .addHelpText(
      "after",
      "\n--diff, --live and --no-wait need --from-sandbox.\n" +
        examples(
          "forkd snapshot --tag mine --rootfs ./rootfs.tar.zst --language 'python=import json'",
          "forkd snapshot --tag tiny --rootfs ./root.ext4 --kernel ./bzImage --memory-mib 128 --run 'touch /ready'",
          "forkd snapshot --from-sandbox 3f2a --tag mid-thought",
        ),
    )
    .action(toAction(snapshot));
}

async function snapshot(cli: Cli, options: Options): Promise<number> {
  if (options.fromSandbox !== undefined) return branch(cli, options, options.fromSandbox);
  const { tag, rootfs } = options;
  if (options.diff || options.live || !options.wait)
    throw usage("--diff, --live and --no-wait need --from-sandbox");
  if (rootfs === undefined) throw usage("Give --rootfs PATH, or --from-sandbox ID");
  if (tag === undefined) throw usage("Name the snapshot with --tag");
  await buildSnapshot(cli, toRequest(options, tag, rootfs));
  if (!cli.out.json) cli.out.line(tag);
  return 0;
}

async function branch(cli: Cli, options: Options, prefix: string): Promise<number> {
  const { tag, diff, live, wait, ...rest } = options;
  if (buildOptions.some((name) => rest[name] !== undefined))
    throw usage("--from-sandbox can be used only with --tag, --diff, --live and --no-wait");
  if (diff && live) throw usage("Give either --diff or --live");
  return branchSandbox(cli, prefix, {
    ...(tag !== undefined && { tag }),
    ...(diff && { mode: "diff" }),
    ...(live && { mode: "live" }),
    ...(!wait && { wait }),
  });
}

function toRequest(options: BuildOptions, tag: string, rootfs: string): BuildRequest {
  return {
    tag,
    rootfs: resolve(rootfs),
    kernel: options.kernel === undefined ? undefined : resolve(options.kernel),
    modules: options.modules === undefined ? undefined : resolve(options.modules),
    memoryMib: options.memoryMib,
    vcpus: options.vcpus,
    diskMib: options.diskMib,
    env: options.env,
    run: options.run?.map((line) => ["/bin/sh", "-c", line]),
    languages: options.language,
    bootWaitMs: options.bootWait === undefined ? undefined : options.bootWait * 1000,
    force: options.force === true,
  };
}
