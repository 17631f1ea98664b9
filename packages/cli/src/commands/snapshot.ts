import { resolve } from "node:path";
import type { RequestOf } from "@forkd/contract";
import type { Command } from "commander";
import { collectEnv, collectLanguage, collectText, parseLifetime, wholeNumber } from "../arguments.ts";
import { buildSnapshot } from "../build-snapshot.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";

type Options = {
  tag: string;
  rootfs: string;
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

export function define(command: Command, toAction: ToAction): void {
  command
    .requiredOption("--tag <tag>", "name of the snapshot")
    .requiredOption("--rootfs <path>", "ext4 image, tar archive (also .gz, .xz, .zst) or directory")
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
    .addHelpText(
      "after",
      examples(
        "forkd snapshot --tag mine --rootfs ./rootfs.tar.zst --language 'python=import json'",
        "forkd snapshot --tag tiny --rootfs ./root.ext4 --kernel ./bzImage --memory-mib 128 --run 'touch /ready'",
      ),
    )
    .action(toAction(snapshot));
}

async function snapshot(cli: Cli, options: Options): Promise<void> {
  await buildSnapshot(cli, toRequest(options));
  if (!cli.out.json) cli.out.line(options.tag);
}

function toRequest(options: Options): RequestOf<"createSnapshot"> {
  return {
    tag: options.tag,
    rootfs: resolve(options.rootfs),
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
