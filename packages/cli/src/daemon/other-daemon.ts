/** A daemon that another process started with the same data directory. */
import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { advice, AppError } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import { connect, defaultDataDir, findDaemon as findTarget, readDaemonRecord } from "@forkd/sdk/node";
import { findDaemon, isHealthy } from "./health.ts";
import { listenMs } from "./deadlines.ts";
import { isAlive } from "./is-alive.ts";

const pollMs = 50;

/** Who looks for it. */
type Seeker = { readonly variables: NodeJS.ProcessEnv; readonly signal: AbortSignal };
type LiveDaemon = { readonly pid: number; readonly socket: string };

/** The daemon of the data directory, by its record; undefined if there is none or it has exited. */
async function liveDaemon(variables: NodeJS.ProcessEnv): Promise<LiveDaemon | undefined> {
  const { pid, socket } = (await readDaemonRecord(defaultDataDir(variables))).record;
  return pid !== undefined && socket !== undefined && isAlive(pid) ? { pid, socket } : undefined;
}

async function ownSocket(variables: NodeJS.ProcessEnv): Promise<string | undefined> {
  const target = await findTarget({}, variables);
  return "socket" in target ? resolve(target.socket) : undefined;
}

/** Throws if the daemon of the data directory answers on another socket than the one that this verb uses. */
export async function refuseOtherSocket({ variables, signal }: Seeker): Promise<void> {
  const [record, own] = [await liveDaemon(variables), await ownSocket(variables)];
  if (!record || own === undefined || resolve(record.socket) === own) return;
  const other = await connect({ socket: record.socket });
  if (!(await isHealthy(other, signal))) return;
  const message = `No daemon listens on "${own}"; the daemon of this data directory (pid ${record.pid}) listens on "${record.socket}"`;
  throw new AppError("daemon_unreachable", message, {
    details: { socket: own, pid: record.pid, listens_on: record.socket },
    remedy: { action: "change_setting", setting: "socket", to: record.socket },
  });
}

/**
 * Two verbs may start a daemon at the same time: one locks the data directory, and both verbs use it. Throws
 * `failure` when the signal fires.
 */
export async function waitForOther({ variables, signal }: Seeker, failure: AppError): Promise<Forkd> {
  let seenAt: number | undefined;
  // Polls, because another process started this daemon.
  while (!signal.aborted) {
    const forkd = await findDaemon(signal);
    if (forkd !== undefined) return forkd;
    await refuseOtherSocket({ variables, signal });
    const record = await liveDaemon(variables);
    if (record) seenAt ??= performance.now();
    if (record && seenAt !== undefined && performance.now() - seenAt > listenMs) throw deaf(record);
    await delay(pollMs, undefined, { signal }).catch(() => undefined); // the loop checks the signal
  }
  throw failure;
}

function deaf({ pid, socket }: LiveDaemon): AppError {
  return new AppError(
    "daemon_unreachable",
    `The daemon (pid ${pid}) runs but does not listen on "${socket}"`,
    {
      details: { pid, socket },
      remedy: advice(`Run \`kill -9 ${pid}\` and \`forkd up\`; the next daemon adopts the sandboxes.`),
    },
  );
}
