/** What the daemon tells about itself in its data directory, for clients that look there. */
import { rm } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { writeFileAtomic, type Logger } from "@forkd/base";

const againMs = 1000;

/**
 * Resolves when it is written, or could not be: then it is tried again until it can. A full disk is no reason not to serve those
 * who could make room. Disposing the result removes it.
 */
export async function publishDaemonRecord(
  path: string,
  facts: Readonly<Record<string, unknown>>,
  log: Logger,
): Promise<AsyncDisposable> {
  const end = new AbortController();
  const write = () => writeFileAtomic(path, `${JSON.stringify(facts, undefined, 2)}\n`, 0o600);
  const retry = async () => {
    while (!end.signal.aborted) {
      // Nothing tells when a disk has room again.
      await delay(againMs, undefined, { ref: false, signal: end.signal }).catch(() => undefined);
      if (end.signal.aborted) return;
      try {
        await write();
        return log.info({ event: "daemon.record", outcome: "ok", path });
      } catch {
        // told already
      }
    }
  };
  let retrying: Promise<void> | undefined;
  try {
    await write();
  } catch (error) {
    log.error({ event: "daemon.record", outcome: "failed", path, error });
    retrying = retry();
  }
  return {
    [Symbol.asyncDispose]: async () => {
      end.abort();
      await retrying;
      await rm(path, { force: true });
    },
  };
}
