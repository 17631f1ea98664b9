/** The daemon as a process: settings, signals, exit code. */
import { createLogger } from "@forkd/base";
import { errorCodes, toAppError } from "@forkd/contract";
import { forkdVersion as version, openRuntime, type RuntimeConfig } from "@forkd/runtime";
import { loadConfig, type Config, type Flags } from "./config.ts";
import { quotaOf } from "./quota.ts";
import { allHandlers } from "./handlers/all.ts";
import { runDaemon, type OpenedHandlers } from "./run-daemon.ts";

export type ServeOptions = {
  readonly flags?: Flags;
  readonly onReady?: (where: { socket: string; url: string | undefined }) => void;
};

/** Runs until SIGINT, SIGTERM or a shutdown request; resolves with the exit code. A second signal ends it at once. */
export async function serve(options: ServeOptions = {}): Promise<number> {
  const config = await loadConfig(options.flags);
  const log = createLogger({ level: config.values.log_level });
  const stop = new AbortController();
  const onSignal = (name: NodeJS.Signals) => {
    log.info({ event: "daemon.signal", signal: name });
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  // A promise that nobody looked after is a defect to be seen, not a reason to take every sandbox down.
  const onUnhandled = (error: unknown) => log.error({ event: "daemon.unhandled", error });
  process.on("unhandledRejection", onUnhandled);
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  try {
    const open = async (requestStop: () => void): Promise<OpenedHandlers> => {
      const runtime = await openRuntime(runtimeConfig(config), log);
      const handlers = allHandlers({ runtime, version, stop: requestStop });
      return { handlers, [Symbol.asyncDispose]: () => runtime[Symbol.asyncDispose]() };
    };
    await runDaemon({ ...options, config, log, version, open, signal: stop.signal });
    log.info({ event: "daemon.stop", outcome: "ok" });
    return 0;
  } catch (error) {
    const failure = toAppError(error);
    log.error({ event: "daemon.stop", outcome: "failed", errorCode: failure.code, err: failure });
    return errorCodes[failure.code].exit;
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
    process.off("unhandledRejection", onUnhandled);
  }
}

function runtimeConfig({ values }: Config): RuntimeConfig {
  return {
    dataDir: values.data_dir,
    runtimeDir: values.runtime_dir,
    guestDir: values.guest_dir,
    accelerator: values.accelerator,
    qemuPath: values.qemu_path,
    poolSize: values.pool_size,
    forkParallelism: values.fork_parallelism,
    maxSandboxes: values.max_sandboxes,
    branchConcurrency: values.branch_concurrency,
    memoryCacheMib: values.memory_cache_mib,
    bootTimeoutMs: values.boot_timeout_secs * 1000,
    readyTimeoutMs: values.ready_timeout_secs * 1000,
    quota: quotaOf(values),
  };
}
