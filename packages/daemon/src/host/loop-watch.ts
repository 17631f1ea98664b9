/**
 * Watches the event loop: one long turn delays every request. A turn over `stallMs` is logged with the routes in
 * progress, counted, and shown by the doctor.
 *
 * The processor time of the process tells a turn that computes from a host that does not run the daemon.
 */
import { Histogram, type Logger } from "@forkd/base";
import { plural } from "@forkd/contract";
import { ok, warn, type Finding } from "@forkd/runtime";

const tickMs = 50;
const stallMs = 200;
const keptMs = 3_600_000;
const maxKept = 100;
const maxRoutes = 10;
const name = "event loop";

type Clock = {
  /** monotonic, in milliseconds */
  now(): number;
  /** processor time of this process, in milliseconds */
  cpu(): number;
};

type Stall = {
  readonly at: number;
  readonly ms: number;
  readonly cpuMs: number;
  readonly routes: Readonly<Record<string, number>>;
};

const processClock: Clock = {
  now: () => performance.now(),
  cpu: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
};

export class LoopWatch implements Disposable {
  readonly seconds = new Histogram(
    "forkd_event_loop_stall_seconds",
    "Turns of the daemon's event loop over 0.2 s",
    [0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
  );
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #timer: NodeJS.Timeout;
  /** requests in progress by route, and those that ended since the last tick, which the turn may have served */
  readonly #open = new Map<string, number>();
  #ended: string[] = [];
  #stalls: Stall[] = [];
  #last: { readonly now: number; readonly cpu: number };

  constructor(log: Logger, clock: Clock = processClock) {
    this.#log = log;
    this.#clock = clock;
    this.#last = { now: clock.now(), cpu: clock.cpu() };
    this.#timer = setInterval(() => this.tick(), tickMs);
    this.#timer.unref();
  }

  /** A request of this route begins; the returned function ends it. */
  begin(route: string): () => void {
    this.#add(route, 1);
    return () => {
      this.#add(route, -1);
      // Bounded: in a turn that serves many requests, the first ones are enough.
      if (this.#ended.length < maxRoutes) this.#ended.push(route);
    };
  }

  /** Measures the time since the last call, which the timer makes. */
  tick(): void {
    const [now, cpu] = [this.#clock.now(), this.#clock.cpu()];
    const ms = Math.round(now - this.#last.now - tickMs);
    const cpuMs = Math.round(cpu - this.#last.cpu);
    this.#last = { now, cpu };
    const ended = this.#ended;
    this.#ended = [];
    if (ms <= stallMs) return;
    const stall = { at: now, ms, cpuMs, routes: this.#routes(ended) };
    this.#stalls = [...this.#recent(now), stall].slice(-maxKept);
    this.seconds.observe(ms / 1000);
    const fields = { event: "daemon.stall", durationMs: ms, cpuMs, routes: stall.routes };
    if (isBusy(stall)) this.#log.warn(fields);
    else this.#log.info({ ...fields, reason: "the host did not run the daemon" });
  }

  /** For the doctor: the last hour. */
  finding(): Finding {
    const recent = this.#recent(this.#clock.now());
    const busy = recent.filter(isBusy);
    const longest = (stalls: readonly Stall[]) => Math.max(...stalls.map(({ ms }) => ms));
    if (busy.length > 0) {
      const worst = busy.find(({ ms }) => ms === longest(busy));
      const routes = Object.keys(worst?.routes ?? {}).join(", ") || "no request";
      const detail = `${plural(busy.length, "turn")} over ${stallMs} ms in the last hour, the longest ${worst?.ms} ms with ${routes} in progress`;
      return warn(name, detail, { action: "show_daemon_log" });
    }
    if (recent.length === 0) return ok(name, `no turn over ${stallMs} ms in the last hour`);
    return ok(name, `the host did not run the daemon for up to ${longest(recent)} ms in the last hour`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #add(route: string, by: number): void {
    const count = (this.#open.get(route) ?? 0) + by;
    if (count > 0) this.#open.set(route, count);
    else this.#open.delete(route);
  }

  #routes(ended: readonly string[]): Record<string, number> {
    const counts = new Map<string, number>();
    for (const route of ended) counts.set(route, (counts.get(route) ?? 0) + 1);
    for (const [route, count] of this.#open) counts.set(route, (counts.get(route) ?? 0) + count);
    return Object.fromEntries([...counts].slice(0, maxRoutes));
  }

  #recent(now: number): Stall[] {
    return this.#stalls.filter(({ at }) => now - at < keptMs);
  }
}

/** The daemon itself computed for at least half of the time. */
function isBusy({ ms, cpuMs }: Stall): boolean {
  return cpuMs * 2 >= ms;
}
