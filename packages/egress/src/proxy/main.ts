/**
 * The proxy process. The daemon starts it, configures it over IPC and starts it again if it exits; it exits with the daemon's
 * end of the channel. Guests choose what it reads, so it runs apart from the daemon: whatever goes wrong here costs
 * connections and no sandbox.
 */
import { createLogger } from "@forkd/base";
import { errorMessage, toErrorBody } from "@forkd/contract";
import type { Counters, LogEntry } from "../types.ts";
import { systemRoots } from "../tls/bundle.ts";
import { InstallationCa } from "../tls/ca.ts";
import { TlsInterceptor } from "../tls/interceptor.ts";
import { noInterceptor, type Interceptor } from "./intercept.ts";
import { toProxySchema, type FromProxy, type ProxyConfiguration, type ToProxy } from "./messages.ts";
import { Proxy } from "./proxy.ts";

const flushMs = 50;
const maxBatch = 5000;
const countMs = 1000;

process.title = "forkd-egress";
const log = createLogger({ level: "info" });

function fail(event: string, error: unknown): never {
  log.error({ event, err: error });
  process.exit(1);
}
process.on("uncaughtException", (error) => fail("egress.crashed", error));
process.on("unhandledRejection", (error) => fail("egress.crashed", error));
// The terminal sends these to the whole group; the daemon decides when to stop.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => undefined);

let proxy: Proxy | undefined;
let isFollowed = false;
let batch: { id: string; entry: LogEntry }[] = [];
let lost = 0;

function send(message: FromProxy): void {
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
}

function onLog(id: string, entry: LogEntry): void {
  if (entry.event !== "denied" && !isFollowed) return;
  if (batch.length >= maxBatch) {
    lost++;
    return;
  }
  if (batch.length === 0) setTimeout(flush, flushMs);
  batch.push({ id, entry });
}

function flush(): void {
  if (lost > 0) log.warn({ event: "egress.entries_lost", count: lost });
  lost = 0;
  send({ type: "entries", entries: batch });
  batch = [];
}

let lastCounted = new Map<string, string>();

/** Totals outlive this process at the daemon: a quota of bytes must hold across a restart. */
async function sendCounters(all: { id: string; counters: Counters }[]): Promise<void> {
  const texts = new Map(all.map(({ id, counters }) => [id, JSON.stringify(counters)]));
  const changed = all.filter(({ id }) => lastCounted.get(id) !== texts.get(id));
  lastCounted = texts;
  if (changed.length > 0) send({ type: "counted", machines: changed });
}

async function interceptorFor({ interception }: ProxyConfiguration): Promise<Interceptor> {
  if (!interception) return noInterceptor;
  const [ca, roots] = await Promise.all([
    InstallationCa.open(interception.caDirectory),
    systemRoots({ extra: interception.extraRoots }),
  ]);
  return new TlsInterceptor({ ca, roots });
}

async function configure({ configuration }: ToProxy & { type: "configure" }): Promise<void> {
  proxy = await Proxy.start({
    configuration,
    interceptor: await interceptorFor(configuration),
    log,
    onLog,
    onGateExit: () => fail("egress.gate_exited", new Error("The gate has exited")),
  });
  setInterval(() => void proxy?.allCounters().then(sendCounters), countMs);
  send({ type: "ready" });
}

/** Messages for a machine are handled in the order in which they arrive, except that nothing waits for listeners. */
async function handle(
  message: Exclude<ToProxy, { type: "configure" }>,
  to: Proxy,
): Promise<Partial<FromProxy>> {
  switch (message.type) {
    case "add":
      await to.add(message.machine, message.used);
      return {};
    case "update":
      await to.update(message.id, message.change);
      return {};
    case "remove":
      await to.remove(message.id);
      return {};
    case "counters":
      return { counters: await to.counters(message.id) };
    case "log":
      return { entries: await to.entries(message.id) } as Partial<FromProxy>;
    case "follow":
      isFollowed = message.all;
      return {};
  }
}

process.on("message", (value) => {
  const { data: message, error } = toProxySchema.safeParse(value);
  if (!message) {
    // Only the daemon has this channel; its version may be another one.
    log.error({ event: "egress.bad_message", reason: errorMessage(error) });
    const seq = (value as { seq?: unknown } | null)?.seq;
    if (typeof seq === "number") send({ type: "failed", seq, error: toErrorBody(error) });
    return;
  }
  if (message.type === "configure") {
    configure(message).catch((reason: unknown) => fail("egress.start_failed", reason));
    return;
  }
  if (!proxy) return;
  handle(message, proxy).then(
    (result) => {
      if ("seq" in message) send({ type: "done", seq: message.seq, ...result } as FromProxy);
    },
    (reason: unknown) => {
      if ("seq" in message) send({ type: "failed", seq: message.seq, error: toErrorBody(reason) });
      else log.warn({ event: "egress.failed", reason: errorMessage(reason) });
    },
  );
});

process.on("disconnect", () => {
  // The names must reach their file; everything else ends with the process.
  const stop = proxy ? proxy[Symbol.asyncDispose]() : Promise.resolve();
  setTimeout(() => process.exit(0), 2000).unref();
  stop.then(
    () => process.exit(0),
    () => process.exit(1),
  );
});
