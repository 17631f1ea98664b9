/** The life of a daemon: lock, token, handlers, listen, tell where; wait; drain, undo all in reverse. */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { Scope, writeFileAtomic, type Logger } from "@forkd/base";
import type { Config } from "./config.ts";
import { lockDataDir } from "./data-dir-lock.ts";
import { openToken } from "./middleware/auth.ts";
import { identifyProcess } from "./process-identity.ts";
import { Idempotency } from "./idempotency/idempotency.ts";
import { router, type Handlers, type RouterOptions } from "./router.ts";
import { openServer } from "./server.ts";

export type OpenedHandlers = AsyncDisposable & {
  readonly handlers: Handlers;
  readonly observe?: RouterOptions["observe"];
  /** called when the daemon stops taking requests */
  readonly stopping?: () => void;
};
export type DaemonOptions = {
  readonly config: Config;
  readonly log: Logger;
  readonly version: string;
  /** Called once the data directory is locked; `stop` makes the daemon stop. */
  readonly open: (stop: () => void) => Promise<OpenedHandlers>;
  /** Asks the daemon to stop, as `stop` does. */
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
  const token = await openToken(settings.data_dir);
  const stopping = stopRequest(options.signal);
  const { handlers, observe, stopping: onStopping } = scope.use(await options.open(stopping.stop));
  const idempotency = scope.use(await Idempotency.open(join(settings.data_dir, "idempotency.jsonl"), log));
  const listener = router({ handlers, version, token, log, idempotency, observe });
  const server = scope.use(await openServer({ socket: settings.socket, listen: settings.listen, listener }));
  const { url } = server;

  const recordFile = join(settings.data_dir, "daemon.json");
  const record = {
    ...(await identifyProcess(process.pid)),
    version,
    socket: settings.socket,
    url: url ?? null,
  };
  await writeFileAtomic(recordFile, `${JSON.stringify(record, undefined, 2)}\n`, 0o600);
  scope.defer(() => rm(recordFile, { force: true }));
  log.info({
    event: "daemon.start",
    outcome: "ok",
    version,
    socket: settings.socket,
    url,
    settings,
    sources: options.config.sources,
    durationMs: Math.round(performance.now() - startedAt),
  });
  options.onReady?.({ socket: settings.socket, url });

  await stopping.asked;
  const stoppedAt = performance.now();
  onStopping?.();
  await server.close(settings.drain_secs * 1000);
  log.info({ event: "daemon.drain", outcome: "ok", durationMs: Math.round(performance.now() - stoppedAt) });
}

function stopRequest(signal: AbortSignal | undefined): { stop: () => void; asked: Promise<void> } {
  let stop = () => {};
  const asked = new Promise<void>((resolve) => (stop = resolve));
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  return { stop, asked };
}
