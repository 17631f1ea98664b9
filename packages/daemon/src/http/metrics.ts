/** Requests and the process itself, for /metrics. */
import { readdir } from "node:fs/promises";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { Counter, Gauge, Histogram, type Metric } from "@forkd/base";
import type { Observed } from "./exchange.ts";

const bounds = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Length of the timer whose delay is measured */
const tickMs = 10;

export class HttpMetrics {
  readonly #seconds = new Histogram(
    "forkd_http_request_seconds",
    "Requests, by route and class of status; streams without an end of their own are left out",
    bounds,
    { labelled: true },
  );
  readonly #requests = new Counter("forkd_requests_total", "Requests, by route and status");
  readonly #failures = new Counter("forkd_failures_total", "Requests that failed, by code of the error");
  readonly #delay = monitorEventLoopDelay({ resolution: tickMs });

  constructor() {
    this.#delay.enable();
  }

  seen({ route, endless, status, seconds, code }: Observed): void {
    this.#requests.add({ route, code: String(status) });
    if (code !== undefined) this.#failures.add({ code });
    if (!endless) this.#seconds.observe(seconds, { route, status: `${Math.floor(status / 100)}xx` });
  }

  /** The delay of the event loop is that since the last call. */
  async all(): Promise<Metric[]> {
    const files = (await readdir("/proc/self/fd")).length;
    const seconds = (nanoseconds: number) =>
      Number.isFinite(nanoseconds) ? Math.max(0, nanoseconds / 1e9 - tickMs / 1000) : 0;
    const { mean, max } = this.#delay;
    const p99 = this.#delay.percentile(99);
    this.#delay.reset();
    return [
      this.#seconds,
      this.#requests,
      this.#failures,
      new Gauge("forkd_daemon_resident_bytes", "Resident memory of the daemon", () => [
        [{}, process.memoryUsage.rss()],
      ]),
      new Gauge("forkd_daemon_open_fds", "File descriptors that the daemon has open", () => [[{}, files]]),
      new Gauge("forkd_daemon_uptime_seconds", "Since the daemon began", () => [[{}, process.uptime()]]),
      new Gauge(
        "forkd_event_loop_lag_seconds",
        "Delay of the daemon's event loop since the last scrape",
        () => [
          [{ stat: "mean" }, seconds(mean)],
          [{ stat: "p99" }, seconds(p99)],
          [{ stat: "max" }, seconds(max)],
        ],
      ),
    ];
  }
}
