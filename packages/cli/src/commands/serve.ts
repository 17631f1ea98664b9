/** The daemon in this process. */
import type { ServeOptions } from "@forkd/daemon";
import { Option, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import type { DaemonAddress } from "../daemon-process.ts";
import { examples } from "../help.ts";

type Options = {
  dataDir?: string;
  runtimeDir?: string;
  socket?: string;
  listen?: string;
  accelerator?: string;
  poolSize?: string;
  forkParallelism?: string;
  maxSandboxes?: string;
  branchConcurrency?: string;
  memoryCacheMib?: string;
  onStop?: string;
  logLevel?: string;
  logFile?: string;
  logFallback?: string;
};

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--data-dir <dir>", "snapshots, records and the token")
    .option("--runtime-dir <dir>", "sockets")
    .option("--socket <path>", "unix socket (default: forkd.sock in the runtime directory)")
    .option("--listen <host:port>", "loopback address for HTTP, or off")
    .option("--accelerator <name>", "auto, kvm or tcg")
    .option("--pool-size <count>", "machines started ahead per snapshot in use")
    .option("--fork-parallelism <count>", "children made at the same time")
    .option("--max-sandboxes <count>", "limit of live sandboxes")
    .option("--branch-concurrency <count>", "limit of branches under way")
    .option("--memory-cache-mib <mib>", "limit of flat memory images on disk")
    .option("--on-stop <what>", "what becomes of running sandboxes when it stops: keep or stop")
    .option("--log-level <level>", "debug, info, warn, error or silent")
    .option("--log-file <path>", "where the log goes (default: stderr)")
    .addOption(new Option("--log-fallback <path>", "the same, unless a setting says otherwise").hideHelp())
    .addHelpText("after", examples("forkd serve", "forkd serve --listen off --log-level debug"))
    .action(toAction(serve));
}

async function serve(cli: Cli, options: Options): Promise<number> {
  // The daemon has its own handling of signals; closing the terminal does not end it.
  using _interrupts = cli.interrupts.takeOver(() => {});
  const daemon = await import("@forkd/daemon");
  const defaults = { log_file: options.logFallback };
  // Awaited here, or the signals would be given back at once.
  return await daemon.serve({ flags: flagsOf(options), defaults, onReady: announce });
}

function flagsOf(options: Options): NonNullable<ServeOptions["flags"]> {
  return {
    data_dir: options.dataDir,
    runtime_dir: options.runtimeDir,
    socket: options.socket,
    listen: options.listen,
    accelerator: options.accelerator,
    pool_size: options.poolSize,
    fork_parallelism: options.forkParallelism,
    max_sandboxes: options.maxSandboxes,
    branch_concurrency: options.branchConcurrency,
    memory_cache_mib: options.memoryCacheMib,
    on_stop: options.onStop,
    log_level: options.logLevel,
    log_file: options.logFile,
  };
}

/** Tells the process that started this one, if one waits for it; then it may go. */
function announce(where: { socket: string; url: string | undefined }): void {
  const address: DaemonAddress = { pid: process.pid, socket: where.socket, url: where.url ?? null };
  process.send?.(address, () => process.disconnect());
}
