/** A real daemon process with a data directory of its own, and a client connected to it. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Scope } from "@forkd/base";
import { connect } from "@forkd/sdk/node";
import type { Forkd } from "@forkd/sdk";
import { linkSnapshots } from "./data-dir.ts";
import { noteDataDir } from "./orphans.ts";
import { cliPath } from "./places.ts";
import { testDir } from "./test-dir.ts";

export type TestDaemon = AsyncDisposable & {
  forkd: Forkd;
  process: ChildProcess;
  dir: string;
  dataDir: string;
  socket: string;
  /** environment that makes the CLI use this daemon */
  env: NodeJS.ProcessEnv;
  log(): string;
};

export async function startDaemon(
  options: { snapshots?: readonly string[]; env?: Record<string, string>; dataDir?: string } = {},
): Promise<TestDaemon> {
  await using scope = new Scope();
  const { path: dir } = scope.use(await testDir());
  const dataDir = options.dataDir ?? join(dir, "data");
  noteDataDir(dataDir);
  if (options.dataDir === undefined) await linkSnapshots(dataDir, options.snapshots ?? []);
  const runtimeDir = join(dir, "run");
  const env = {
    ...process.env,
    FORKD_DATA_DIR: dataDir,
    FORKD_RUNTIME_DIR: runtimeDir,
    FORKD_LISTEN: "off",
    FORKD_POOL_SIZE: "0",
    FORKD_LOG_LEVEL: "info",
    ...options.env,
  };
  const logPath = join(dir, "daemon.log");
  const log = openSync(logPath, "a");
  const child = fork(cliPath, ["serve"], { env, execArgv: [], stdio: ["ignore", log, log, "ipc"] });
  closeSync(log);
  scope.defer(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await once(child, "exit");
  });
  const ended = once(child, "exit").then(() => {
    throw new Error(`The daemon ended: ${readFileSync(logPath, "utf8").slice(-3000)}`);
  });
  ended.catch(() => undefined);
  const ready = await Promise.race([once(child, "message"), ended]);
  const { socket } = ready[0] as { socket: string };
  const forkd = await connect({ socket });
  const kept = scope.keep();
  return {
    forkd,
    process: child,
    dir,
    dataDir,
    socket,
    env,
    log: () => readFileSync(logPath, "utf8"),
    [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose](),
  };
}
