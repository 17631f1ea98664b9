/** A real daemon process with its own data directory, and a client connected to it. */
import { fork, type ChildProcess, type ForkOptions } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Scope } from "@forkd/base";
import { connect } from "@forkd/sdk/node";
import type { Forkd } from "@forkd/sdk";
import { linkSnapshots, ownImages } from "./data-dir.ts";
import { noteDataDir } from "./orphans.ts";
import { copySnapshots, forkOptions, giveTo, programsFor, type OrdinaryUser } from "./ordinary-user.ts";
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
  options: {
    snapshots?: readonly string[];
    env?: Record<string, string>;
    dataDir?: string;
    /** the daemon may remove unused images */
    ownImages?: boolean;
    /** who runs the daemon; default: the user of the test. The test must run as root. */
    user?: OrdinaryUser;
    /** commands of a shell, run as root in a mount namespace that the daemon then has */
    mounts?: string;
  } = {},
): Promise<TestDaemon> {
  await using scope = new Scope();
  const { path: dir } = scope.use(await testDir());
  const dataDir = options.dataDir ?? join(dir, "data");
  noteDataDir(dataDir);
  const { user } = options;
  if (options.dataDir === undefined)
    await (user ? copySnapshots : linkSnapshots)(dataDir, options.snapshots ?? []);
  if (options.ownImages) await ownImages(dataDir);
  const runtimeDir = join(dir, "run");
  const env = {
    ...process.env,
    FORKD_DATA_DIR: dataDir,
    FORKD_RUNTIME_DIR: runtimeDir,
    FORKD_LISTEN: "off",
    FORKD_POOL_MEMORY_PERCENT: "0",
    FORKD_LOG_LEVEL: "info",
    FORKD_ON_STOP: "stop",
    ...(user && { HOME: dir }),
    ...options.env,
  };
  const { cli } = user ? scope.use(await programsFor(user)) : { cli: cliPath };
  if (user) await giveTo(user, dir);
  const logPath = join(dir, "daemon.log");
  const log = openSync(logPath, "a");
  const how = user
    ? forkOptions(user)
    : options.mounts === undefined
      ? { execArgv: [] }
      : behind(options.mounts);
  const child = fork(cli, ["serve"], { env, stdio: ["ignore", log, log, "ipc"], ...how });
  closeSync(log);
  scope.defer(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await once(child, "exit");
  });
  const ended = once(child, "exit").then(() => {
    throw new Error(`The daemon exited: ${readFileSync(logPath, "utf8").slice(-3000)}`);
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

/** How to start the daemon with its own mounts. */
function behind(mounts: string): ForkOptions {
  const script = `${mounts} && exec "$@"`;
  return { execPath: "unshare", execArgv: ["--mount", "sh", "-c", script, "sh", process.execPath] };
}

/** Runs daemons one after another on the same directories. The last one stops all sandboxes. */
export async function withDaemons(
  tags: readonly string[],
  work: (start: (env?: Record<string, string>) => Promise<TestDaemon>, dataDir: string) => Promise<void>,
  user?: OrdinaryUser,
): Promise<void> {
  await using dir = await testDir();
  const dataDir = join(dir.path, "data");
  await (user ? copySnapshots : linkSnapshots)(dataDir, tags);
  if (user) await giveTo(user, dir.path);
  const started: TestDaemon[] = [];
  const start = async (env: Record<string, string> = {}) => {
    const next = await startDaemon({
      dataDir,
      env: { FORKD_RUNTIME_DIR: join(dir.path, "run"), ...env },
      ...(user && { user }),
    });
    started.push(next);
    return next;
  };
  try {
    await work(start, dataDir);
  } finally {
    const last = started.at(-1);
    // If a failing test has stopped the last daemon, start another one to stop the sandboxes.
    if (last && (last.process.exitCode !== null || last.process.signalCode !== null)) await start();
    for (const each of started) await each[Symbol.asyncDispose]();
  }
}

export async function endDaemon({ process }: TestDaemon, signal: "SIGTERM" | "SIGKILL"): Promise<void> {
  const ended = once(process, "exit");
  process.kill(signal);
  await ended;
}
