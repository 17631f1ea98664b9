/** A daemon that the benchmark starts and stops, and a client of it whose calls have deadlines. */
import { fork as forkProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Forkd } from "@forkd/sdk";
import { nodeTransport } from "@forkd/sdk/node";
import { deadline, limits, stop, withCallDeadline } from "./deadline.ts";
import { repository } from "./run.ts";

export type BenchDaemon = AsyncDisposable & {
  forkd: Forkd;
  pid: number;
  /** path of its HTTP socket */
  socket: string;
  /** SIGKILL; its sandboxes keep running */
  kill(): Promise<void>;
};

export type LaunchOptions = {
  /** data directory */
  dir: string;
  /** default: a new one, removed with the daemon */
  runtimeDir?: string;
  env: Record<string, string>;
  /** signals of the terminal do not reach it: the benchmark stops it */
  detached?: boolean;
};

export async function launchDaemon(options: LaunchOptions): Promise<BenchDaemon> {
  const { dir, env, detached = false } = options;
  const runtimeDir = options.runtimeDir ?? mkdtempSync(join(tmpdir(), "forkd-bench-"));
  const logPath = join(dir, "daemon.log");
  const log = openSync(logPath, "w");
  const child = forkProcess(join(repository, "packages/cli/dist/src/main.js"), ["serve"], {
    env: {
      ...process.env,
      FORKD_DATA_DIR: dir,
      FORKD_RUNTIME_DIR: runtimeDir,
      FORKD_LISTEN: "off",
      FORKD_LOG_LEVEL: "warn",
      FORKD_ON_STOP: "stop",
      ...env,
    },
    execArgv: [],
    stdio: ["ignore", log, log, "ipc"],
    detached,
  });
  closeSync(log);
  const end = async (signal: "SIGTERM" | "SIGKILL") => {
    await stop("the daemon", child, { signal, secs: limits.daemon });
    if (options.runtimeDir === undefined) rmSync(runtimeDir, { recursive: true, force: true });
  };
  const exited = once(child, "exit").then(() => {
    throw new Error(`The daemon exited. Its log is ${logPath}`);
  });
  exited.catch(() => undefined);
  try {
    const started = Promise.race([once(child, "message"), exited]);
    const [ready] = (await deadline("the daemon to listen", limits.daemon, started)) as [{ socket: string }];
    return {
      forkd: new Forkd({ transport: withCallDeadline(nodeTransport({ socket: ready.socket })) }),
      pid: child.pid ?? 0,
      socket: ready.socket,
      kill: () => end("SIGKILL"),
      [Symbol.asyncDispose]: () => end("SIGTERM"),
    };
  } catch (error) {
    await end("SIGKILL");
    throw error;
  }
}
