/** The daemon in this process. */
import type { ServeOptions } from "@forkd/daemon";
import { Option, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { collectSetting, usage } from "../options/arguments.ts";
import type { DaemonAddress } from "../daemon/start.ts";
import { examples } from "../options/help.ts";

type Flags = NonNullable<ServeOptions["flags"]>;
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
  auth?: string;
  tokenFile?: string;
  allowedHosts?: string;
  tlsCert?: string;
  tlsKey?: string;
  allowPlainHttp?: true;
  auditLog?: string;
  set?: Record<string, string>;
};

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--data-dir <dir>", "snapshots, records and the token")
    .option("--runtime-dir <dir>", "sockets")
    .option("--socket <path>", "unix socket (default: forkd.sock in the runtime directory)")
    .option("--listen <host:port>", "address for HTTP, or off")
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
    .option("--auth <how>", "token, or off (only on a loopback address)")
    .option("--token-file <path>", "file with the token (default: token in the data directory)")
    .option("--allowed-hosts <names>", "comma-separated names by which the daemon may be called")
    .option("--tls-cert <path>", "PEM file with the certificate for HTTPS")
    .option("--tls-key <path>", "PEM file with its key")
    .option("--allow-plain-http", "listen without TLS on an address that others can reach")
    .option("--audit-log <path>", "audit log (default: audit.jsonl in the data directory), or off")
    .option("--set <name=value>", "any other setting of `forkd config` (repeatable)", collectSetting)
    .addHelpText(
      "after",
      examples(
        "forkd serve                                                     # until Ctrl-C",
        "forkd serve --listen off --log-level debug                      # until Ctrl-C",
        "forkd serve --listen 0.0.0.0:8889 --tls-cert cert.pem --tls-key key.pem",
        "forkd serve --set max_memory_mib=16384 --set drain_secs=30      # until Ctrl-C",
      ),
    )
    .action(toAction(serve));
}

async function serve(cli: Cli, options: Options): Promise<number> {
  // The daemon has its own handling of signals; closing the terminal does not end it.
  using _interrupts = cli.interrupts.takeOver(() => {});
  const daemon = await import("@forkd/daemon");
  const defaults = { log_file: options.logFallback };
  // Awaited here, or the signals would be given back at once.
  return await daemon.serve({ flags: await flagsOf(options), defaults, onReady: announce });
}

async function flagsOf(options: Options): Promise<Flags> {
  const { requireSetting } = await import("../daemon/local.ts");
  const flags: Flags = ownFlags(options);
  const given: Record<string, string> = {};
  for (const [text, value] of Object.entries(options.set ?? {})) {
    const name = await requireSetting(text);
    if (name in given || flags[name as keyof Flags] !== undefined)
      throw usage(`The setting ${name} is given twice.`);
    given[name] = value;
  }
  return { ...flags, ...given };
}

/** Of the settings that have an option of their own. */
function ownFlags(options: Options): Flags {
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
    auth: options.auth,
    token_file: options.tokenFile,
    allowed_hosts: options.allowedHosts,
    tls_cert: options.tlsCert,
    tls_key: options.tlsKey,
    allow_plain_http: options.allowPlainHttp && "true",
    audit_log: options.auditLog,
  };
}

/** Tells the process that started this one, if one waits for it; then it may go. */
function announce(where: { socket: string; url: string | undefined }): void {
  const address: DaemonAddress = { pid: process.pid, socket: where.socket, url: where.url ?? null };
  process.send?.(address, () => process.disconnect());
}
