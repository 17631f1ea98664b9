import { resolve } from "node:path";
import type { RequestOf } from "@forkd/contract";
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
  language?: NonNullable<RequestOf<"createSnapshot">["languages"]>;
  bootWait?: number;
  force?: true;
};

/** Options that say how a machine is made */
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
    .option("--tag <tag>", "name of the snapshot")
    .option("--rootfs <path>", "ext4 image, tar archive (also .gz, .xz, .zst) or directory")
    .option("--kernel <path>", "Linux kernel image (default: Debian's cloud kernel)")
    .option("--modules <dir>", "modules of that kernel (default: its drivers are built in)")
    .option("--memory-mib <mib>", "guest memory", wholeNumber(64, 65_536))
    .option("--vcpus <count>", "virtual processors", wholeNumber(1, 64))
    .option("--disk-mib <mib>", "size of the root file system", wholeNumber(16, 1_048_576))
    .option("-e, --env <name=value>", "environment of every command (repeatable)", collectEnv)
    .option("--run <command>", "shell command to run before the snapshot is taken (repeatable)", collectText)
    .option(
      "--language <name[=code]>",
      "warm interpreter, python or node, and its warm-up (repeatable)",
      collectLanguage,
    )
    .option("--boot-wait <duration>", "longest wait for the agent", parseLifetime)
    .option("--force", "replace a snapshot that has this tag")
    .option("--from-sandbox <id>", "capture a running sandbox in place of a build, as `forkd branch` does")
    .option("--diff", "with --from-sandbox: write while the sandbox is paused")
    .option("--live", "with --from-sandbox: write after the sandbox runs again (the default)")
    .option("--no-wait", "with --from-sandbox: return as soon as the sandbox runs again")
    .addHelpText(
      "after",
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
    throw usage("--diff, --live and --no-wait go with --from-sandbox");
  if (rootfs === undefined) throw usage("give --rootfs PATH, or --from-sandbox ID");
  if (tag === undefined) throw usage("name the snapshot with --tag");
  await buildSnapshot(cli, toRequest(options, tag, rootfs));
  if (!cli.out.json) cli.out.line(tag);
  return 0;
}

async function branch(cli: Cli, options: Options, prefix: string): Promise<number> {
  const { tag, diff, live, wait, ...rest } = options;
  if (buildOptions.some((name) => rest[name] !== undefined))
    throw usage("--from-sandbox goes only with --tag, --diff, --live and --no-wait: the machine is there");
  if (diff && live) throw usage("give either --diff or --live");
  return branchSandbox(cli, prefix, {
    ...(tag !== undefined && { tag }),
    ...(diff && { mode: "diff" }),
    ...(live && { mode: "live" }),
    ...(!wait && { wait }),
  });
}

function toRequest(options: BuildOptions, tag: string, rootfs: string): RequestOf<"createSnapshot"> {
  return {
    tag,
    rootfs: resolve(rootfs),
    kernel: options.kernel === undefined ? undefined : resolve(options.kernel),
    modules: options.modules === undefined ? undefined : resolve(options.modules),
    memory_mib: options.memoryMib,
    vcpus: options.vcpus,
    disk_mib: options.diskMib,
    env: options.env,
    run: options.run?.map((line) => ["/bin/sh", "-c", line]),
    languages: options.language,
    boot_wait_secs: options.bootWait,
    force: options.force === true,
  };
}
