/**
 * Starts the daemon: with systemd if its service is enabled, otherwise as a background process in its own
 * session. That process sends its address over an IPC channel and then disconnects. It logs to a file in the
 * data directory.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import {
  advice,
  AppError,
  deadlineSignal,
  errorMessage,
  fromErrorBody,
  parseRemedy,
} from "@forkd/contract/wire";
import { defaultDataDir, findDaemon as findTarget, readDaemonRecord } from "@forkd/sdk/node";
import type { Cli } from "../cli.ts";
import { cliRemedy } from "../terminal/remedies.ts";
import { killMs, startMs } from "./deadlines.ts";
import { refuseOtherSocket, waitForOther } from "./other-daemon.ts";
import { openOwnLog } from "./open-log.ts";
import { serviceOf, systemctl } from "./systemd.ts";

const logTailLines = 15;
const mainPath = fileURLToPath(new URL("../main.js", import.meta.url));

/** Where the daemon listens; also the message of `serve` to the process that started it. */
export type DaemonAddress = { readonly pid: number; readonly socket: string; readonly url: string | null };

/** Starts the daemon and resolves when it answers, even if another process started it first. */
export async function startDaemon(cli: Cli, args: readonly string[] = []): Promise<DaemonAddress> {
  using _progress = cli.progress("Starting the daemon");
  const dataDir = resolve(defaultDataDir(cli.environment.variables));
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const { file, problem } = await readDaemonRecord(dataDir);
  if (problem !== undefined)
    cli.out.note(`Ignored ${file}: ${problem}. The daemon replaces it when it starts.`);
  const logPath = join(dataDir, "daemon.log");
  await refuseOtherSocket({ variables: cli.environment.variables, signal: cli.signal });
  using deadline = deadlineSignal(startMs, cli.signal);
  const { signal } = deadline;
  const service = args.length === 0 ? await serviceOf(dataDir, cli.environment.variables) : undefined;
  if (service) {
    await systemctl([...service, "start", "forkd.service"]);
    const remedy = advice("Run `journalctl -u forkd` to read the daemon's log.");
    const late = "The service forkd was started, but its daemon does not answer";
    return addressOf(cli, new AppError("daemon_unreachable", late, { remedy }), signal);
  }
  const log = await openOwnLog(logPath);
  const logStart = (await log.stat()).size;
  const own = ["serve", "--json", ...placeFlags(cli, dataDir), "--log-fallback", logPath];
  const child = spawn(process.execPath, [mainPath, ...own, ...args], {
    detached: true,
    stdio: ["ignore", log.fd, log.fd, "ipc"],
    cwd: "/",
  });
  try {
    return await readiness(child, signal);
  } catch (error) {
    const failure = await explain(error, logPath, logStart);
    if (failure.code !== "data_dir_in_use") throw failure;
    return await addressOf(cli, failure, signal);
  } finally {
    await log.close();
    if (child.connected) child.disconnect();
    child.unref();
  }
}

/** Makes relative paths of the environment absolute, because the daemon starts in "/". */
function placeFlags(cli: Cli, dataDir: string): string[] {
  const {
    FORKD_RUNTIME_DIR: runtimeDir,
    FORKD_SOCKET: socket,
    FORKD_TOKEN_FILE: tokenFile,
    FORKD_TLS_CERT: tlsCert,
    FORKD_TLS_KEY: tlsKey,
    FORKD_AUDIT_LOG: auditLog,
    FORKD_LOG_FILE: logFile,
    FORKD_GUEST_DIR: guestDir,
    FORKD_RECIPES_DIR: recipesDir,
  } = cli.environment.variables;
  return [
    "--data-dir",
    dataDir,
    ...(runtimeDir ? ["--runtime-dir", resolve(runtimeDir)] : []),
    ...(socket ? ["--socket", resolve(socket)] : []),
    ...(tokenFile ? ["--token-file", resolve(tokenFile)] : []),
    ...(tlsCert ? ["--tls-cert", resolve(tlsCert)] : []),
    ...(tlsKey ? ["--tls-key", resolve(tlsKey)] : []),
    ...(auditLog ? ["--audit-log", auditLog === "off" ? auditLog : resolve(auditLog)] : []),
    ...(logFile ? ["--log-file", logFile === "stderr" ? logFile : resolve(logFile)] : []),
    ...(guestDir ? ["--set", `guest_dir=${resolve(guestDir)}`] : []),
    ...(recipesDir ? ["--set", `recipes_dir=${resolve(recipesDir)}`] : []),
  ];
}

function readiness(child: ChildProcess, signal: AbortSignal): Promise<DaemonAddress> {
  return new Promise((resolveReady, reject) => {
    const fail = (message: string, cause?: unknown) =>
      reject(new AppError("daemon_unreachable", message, { cause }));
    child.once("error", (cause) => fail("Cannot start the daemon", cause));
    child.once("exit", (code, name) =>
      fail(`The daemon exited while it started (${name ?? `exit code ${code}`})`),
    );
    // The child runs the same program, so its message has this type.
    child.once("message", (message) => resolveReady(message as DaemonAddress));
    const abort = () => {
      // No verb would own a daemon that starts later, or that hangs.
      child.removeAllListeners("exit");
      const timer = setTimeout(() => child.kill("SIGKILL"), killMs);
      child.once("exit", () => {
        clearTimeout(timer);
        const late = `The daemon did not start within ${startMs / 1000} s, or its start was interrupted`;
        fail(late, signal.reason);
      });
      child.kill("SIGTERM");
    };
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}

/** Adds to a failure the code and message that the daemon logged, or otherwise the end of the log. */
async function explain(error: unknown, path: string, start: number): Promise<AppError> {
  const lines = (await readFile(path))
    .subarray(start)
    .toString("utf8")
    .trimEnd()
    .split("\n")
    .slice(-logTailLines);
  const logged = lines.map(parseFailure).findLast((failure) => failure !== undefined);
  const message = logged?.error ?? errorMessage(error);
  const code = logged?.code ?? (error instanceof AppError ? error.code : "internal");
  const details = logged === undefined ? { log: lines.join("\n") } : {};
  const remedy = parseRemedy(logged?.remedy) ?? advice(`The daemon's log is ${path}.`);
  return fromErrorBody({ error: message, code, details, remedy: { ...remedy, text: cliRemedy(remedy) } });
}

type LogRecord = {
  event?: string;
  errorCode?: string;
  err?: { message?: string; remedy?: unknown };
  remedy?: unknown;
  error?: string;
  code?: string;
};

/** A record of the daemon that gave up, or the error body of `serve --json`. */
function parseFailure(line: string): { error: string; code: string; remedy: unknown } | undefined {
  try {
    const { event, errorCode, err, error, code, remedy } = JSON.parse(line) as LogRecord;
    if (error !== undefined && code !== undefined) return { error, code, remedy };
    if (event !== "daemon.stop" || errorCode === undefined) return undefined;
    return { error: err?.message ?? errorCode, code: errorCode, remedy: err?.remedy };
  } catch {
    return undefined; // not a record
  }
}

async function addressOf(cli: Cli, failure: AppError, signal: AbortSignal): Promise<DaemonAddress> {
  const forkd = await waitForOther({ variables: cli.environment.variables, signal }, failure);
  return findAddress(cli, (await forkd.version({ signal })).pid);
}

/** Where a running daemon listens, from the SDK and from the daemon's record in its data directory. */
export async function findAddress(cli: Cli, pid: number): Promise<DaemonAddress> {
  const { variables } = cli.environment;
  const target = await findTarget({}, variables);
  const { record } = await readDaemonRecord(defaultDataDir(variables));
  const url = "url" in target ? target.url : (record.url ?? null);
  return { pid, socket: "socket" in target ? target.socket : "-", url };
}
