/** The daemon as a process: settings, signals, exit code. */
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import {
  closeInheritedDescriptors,
  createLogger,
  LogFile,
  prioritise,
  Scope,
  type Logger,
} from "@forkd/base";
import { errorCodes, toAppError } from "@forkd/contract";
import { openE2b, type E2b } from "@forkd/e2b";
import { forkdVersion as version, openRuntime, runtimeConfig } from "@forkd/runtime";
import { loadConfig, type Flags, type Settings } from "./settings/load.ts";
import { allHandlers } from "./handlers/all.ts";
import { LoopWatch } from "./host/loop-watch.ts";
import { HttpMetrics } from "./http/metrics.ts";
import type { Observed } from "./http/exchange.ts";
import { unusableFile } from "./host/unusable-file.ts";
import { E2bServer } from "./e2b/e2b-server.ts";
import { openPorts } from "./ports/open-ports.ts";
import { runDaemon, type Access, type OpenedHandlers } from "./daemon.ts";

type ServeOptions = {
  readonly flags?: Flags;
  /** replace the usual defaults */
  readonly defaults?: Flags;
  readonly onReady?: (where: { socket: string; url: string | undefined }) => void;
};

/**
 * Runs until SIGINT, SIGTERM or a shutdown request; resolves with the exit code. A second signal exits at
 * once.
 */
export async function serve(options: ServeOptions = {}): Promise<number> {
  closeInheritedDescriptors();
  // Little of the daemon's memory lives long. V8 would keep as much garbage as data, and guests decide how much
  // data passes through.
  setFlagsFromString("--optimize-for-size");
  const config = await loadConfig(options.flags, process.env, {
    ...(options.defaults && { defaults: options.defaults }),
  });
  const { values } = config;
  const logFile = openLogFile(values);
  const log = createLogger({ level: values.log_level, ...(logFile && { destination: logFile }) });
  const priority = values.nice === 0 ? undefined : prioritise(values.nice);
  const stop = new AbortController();
  let isReady = false;
  const onSignal = (name: NodeJS.Signals) => {
    log.info({ event: "daemon.signal", signal: name });
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  // An unhandled rejection is a defect to log, not a reason to stop every sandbox.
  const onUnhandled = (error: unknown) => log.error({ event: "daemon.unhandled", error });
  process.on("unhandledRejection", onUnhandled);
  // What SIGHUP reopens. If one fails, it keeps its old file, and the others are still reopened.
  const hangups: (() => void)[] = [];
  if (logFile) hangups.push(() => logFile.reopen());
  const onHangup = () => hangUp(hangups, log);
  process.on("SIGHUP", onHangup);
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  try {
    const open = async (requestStop: () => void, access: Access): Promise<OpenedHandlers> => {
      await using building = new Scope();
      const runtime = building.use(await openRuntime(runtimeConfig(values), log));
      // A daemon that fails to start, for example because its port is in use, must not stop sandboxes.
      const { onStop } = runtime.work;
      runtime.work.onStop = "keep";
      runtime.onDenied = (sandbox, entry) => {
        const { protocol, name, address, port, reason, suggestion, suppressed } = entry;
        const facts = { protocol, name, address, port, reason, suggestion, suppressed };
        access.audit.event("network.denied", { sandbox, ...facts });
      };
      const http = new HttpMetrics();
      const loop = new LoopWatch(log);
      building.defer(() => loop[Symbol.dispose]());
      let opened: E2b | undefined;
      const openByDefault = (id: string) => opened?.plane.records.portsOf(id);
      const { gate } = access;
      const ports = openPorts(runtime, { domains: values.ports_domain, gate, openByDefault });
      const { e2b_templates: templates } = values;
      opened = building.use(await openE2b({ runtime, templates, domain: () => ports.domain }));
      const scope = building.keep();
      const own = { runtime, version, config, stop: requestStop, http, loop, ports };
      return {
        handlers: allHandlers({ ...own, ...access }),
        ports,
        e2b: new E2bServer({ e2b: opened, ports, gate }),
        observe: (request: Observed) => http.seen(request),
        watch: (route: string) => loop.begin(route),
        started: () => void (runtime.work.onStop = onStop),
        stopping: () => runtime.events.close(),
        beforeCut: () => runtime.work.detachCallers(),
        [Symbol.asyncDispose]: () => scope[Symbol.asyncDispose](),
      };
    };
    const onReady: ServeOptions["onReady"] = (where) => {
      isReady = true;
      options.onReady?.(where);
    };
    await runDaemon({ config, log, version, open, signal: stop.signal, priority, onReady });
    log.info({ event: "daemon.stop", outcome: "ok" });
    return 0;
  } catch (error) {
    // Ctrl-C in a terminal also stops the programs that the start runs, so the start fails.
    if (stop.signal.aborted && !isReady) {
      log.info({ event: "daemon.stop", outcome: "interrupted", error });
      return 0;
    }
    const failure = toAppError(error);
    const record = { event: "daemon.stop", outcome: "failed", errorCode: failure.code, err: failure };
    log.error(record);
    // The process that started the daemon reads stderr.
    if (logFile && !logFile.isSameAs(2)) createLogger({ level: "error" }).error(record);
    return errorCodes[failure.code].exit;
  } finally {
    process.off("SIGHUP", onHangup);
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
    process.off("unhandledRejection", onUnhandled);
  }
}

function openLogFile(values: Settings): LogFile | undefined {
  if (values.log_file === "stderr") return undefined;
  const maxBytes = values.log_max_mib * 1024 * 1024;
  const isOwn = values.log_file === join(values.data_dir, "daemon.log");
  try {
    return new LogFile({ path: values.log_file, maxBytes, keep: values.log_keep, isOwn });
  } catch (error) {
    throw unusableFile(error, "the log");
  }
}

function hangUp(reopens: readonly (() => void)[], log: Logger): void {
  for (const reopen of reopens) {
    try {
      reopen();
    } catch (error) {
      log.error({ event: "daemon.hangup", outcome: "failed", error });
    }
  }
  log.info({ event: "daemon.hangup", outcome: "ok" });
}
