/**
 * Asks a daemon for `/version` again and again from its own thread, so that the answers that the
 * benchmark reads do not delay it: what is slow is the daemon, or the host.
 */
import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { deadline, limits } from "./deadline.ts";

const everyMs = 10;

type Told = { latencies: number[] };

/** Measures until it is stopped. */
export class VersionProbe {
  readonly #worker: Worker;
  readonly #failed: Promise<never>;

  constructor(socket: string) {
    this.#worker = new Worker(new URL(import.meta.url), { workerData: { socket } });
    this.#failed = new Promise((_, reject) => this.#worker.once("error", reject));
    this.#failed.catch(() => undefined);
  }

  /** Milliseconds of each answer, sorted. */
  async stop(): Promise<number[]> {
    const told = new Promise<Told>((resolve) => this.#worker.once("message", resolve));
    this.#worker.postMessage("stop");
    try {
      const { latencies } = await deadline("the probe", limits.call, Promise.race([told, this.#failed]));
      return latencies.sort((a, b) => a - b);
    } finally {
      await this.#worker.terminate();
    }
  }
}

function askVersion(socketPath: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, path: "/version", timeout: limits.call * 1000 }, (response) => {
      response.resume();
      response.on("end", resolve);
      response.on("error", reject);
    });
    asked.on("timeout", () => asked.destroy(new Error("The daemon does not answer")));
    asked.on("error", reject);
    asked.end();
  });
}

async function probe(socket: string): Promise<void> {
  const latencies: number[] = [];
  let isOver = false;
  parentPort?.once("message", () => (isOver = true));
  do {
    const begun = performance.now();
    await askVersion(socket);
    latencies.push(performance.now() - begun);
    await sleep(everyMs);
  } while (!isOver);
  parentPort?.postMessage({ latencies } satisfies Told);
}

if (!isMainThread) await probe((workerData as { socket: string }).socket);
