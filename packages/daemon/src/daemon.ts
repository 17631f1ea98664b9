/**
 * Runs the daemon: locks the data directory, opens access, handlers and server, publishes the address, waits,
 * drains, closes.
 */
import { mkdir } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { Scope, type Logger, type Priority } from "@forkd/base";
import { hostBootId, identify } from "@forkd/runtime";
import type { Config } from "./settings/load.ts";
import { withoutSecrets } from "./settings/table.ts";
import { lockDataDir } from "./host/data-dir-lock.ts";
import { openAccess, type Access } from "./access/open-access.ts";
import { Idempotency } from "./idempotency/idempotency.ts";
import { requestListener, upgradeListener, type ExchangeOptions } from "./http/exchange.ts";
import type { Handlers } from "./http/handlers.ts";
import { openServer } from "./http/server.ts";
import { publishDaemonRecord } from "./host/daemon-record.ts";
import type { E2bServer } from "./e2b/e2b-server.ts";
import type { PortServer } from "./ports/port-server.ts";

export type OpenedHandlers = AsyncDisposable & {
  readonly handlers: Handlers;
  readonly ports?: PortServer;
  readonly e2b?: E2bServer;
  /** called before the server closes the remaining connections */
  readonly beforeCut?: () => void;
  readonly observe?: ExchangeOptions["observe"];
  readonly watch?: ExchangeOptions["watch"];
  /** called when the daemon accepts requests */
  readonly started?: () => void;
  /** called when the daemon stops accepting requests */
  readonly stopping?: () => void;
};
export type { Access } from "./access/open-access.ts";
type DaemonOptions = {
  readonly config: Config;
  readonly log: Logger;
  readonly version: string;
  /** Called when the data directory is locked; `stop` stops the daemon. */
  readonly open: (stop: () => void, access: Access) => Promise<OpenedHandlers>;
  /** its scheduling priority, for the log */
  readonly priority?: Priority | undefined;
  /** Stops the daemon, as `stop` does. */
  readonly signal?: AbortSignal;
  readonly onReady?: (where: { socket: string; url: string | undefined }) => void;
};

/** Resolves when the daemon has stopped and released everything. */
export async function runDaemon(options: DaemonOptions): Promise<void> {
  const { log, version } = options;
  const settings = options.config.values;
  const startedAt = performance.now();
  await using scope = new Scope();
  await mkdir(settings.data_dir, { recursive: true, mode: 0o700 });
  scope.use(await lockDataDir(settings.data_dir));
  const access = scope.use(await openAccess(settings, log));
  let started = false;
  scope.defer(() => {
    if (started) access.audit.event("daemon.stop", { pid: process.pid });
  });
  const stopping = stopRequest(options.signal);
  const opened = scope.use(await options.open(stopping.stop, access));
  const { handlers, ports, e2b, observe, watch } = opened;
  const idempotency = scope.use(await Idempotency.open(join(settings.data_dir, "idempotency.jsonl"), log));
  const { gate, audit } = access;
  const exchange = { handlers, ports, e2b, version, gate, audit, log, idempotency, observe, watch };
  const listener = requestListener(exchange);
  const onUpgrade = upgradeListener(exchange);
  const onExpect = (incoming: IncomingMessage) => ports?.takesExpect(incoming) ?? false;
  const { socket, listen } = settings;
  const limits = {
    maxConnections: settings.max_connections,
    maxPerAddress: settings.max_connections_per_address,
  };
  const { tls } = access;
  const server = scope.use(
    await openServer({ socket, listen, listener, onUpgrade, onExpect, tls, limits, log }),
  );
  const { url } = server;
  if (ports) ports.url = url;
  opened.started?.();

  const recordFile = join(settings.data_dir, "daemon.json");
  const record = {
    pid: process.pid,
    start_time: identify(process.pid)?.startTime,
    boot_id: hostBootId(),
    version,
    socket: settings.socket,
    url: url ?? null,
    token_file: access.tokenFile,
  };
  scope.use(await publishDaemonRecord(recordFile, record, log));
  log.info({
    event: "daemon.start",
    outcome: "ok",
    version,
    socket: settings.socket,
    url,
    priority: options.priority,
    settings: withoutSecrets(settings),
    sources: options.config.sources,
    durationMs: Math.round(performance.now() - startedAt),
  });
  access.audit.event("daemon.start", { version, pid: process.pid, url: url ?? null });
  started = true;
  const onHangup = () => void access.reload();
  process.on("SIGHUP", onHangup);
  scope.defer(() => void process.off("SIGHUP", onHangup));
  options.onReady?.({ socket: settings.socket, url });

  await stopping.asked;
  const stoppedAt = performance.now();
  opened.stopping?.();
  ports?.stop();
  await server.close(settings.drain_secs * 1000, opened.beforeCut);
  log.info({ event: "daemon.drain", outcome: "ok", durationMs: Math.round(performance.now() - stoppedAt) });
}

function stopRequest(signal: AbortSignal | undefined): { stop: () => void; asked: Promise<void> } {
  let stop = () => {};
  const asked = new Promise<void>((resolve) => (stop = resolve));
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  return { stop, asked };
}
