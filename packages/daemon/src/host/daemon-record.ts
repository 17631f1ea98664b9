/** daemon.json in the data directory: where clients find the daemon. */
import { rm } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { writeFileAtomic, type Logger } from "@forkd/base";

const againMs = 1000;

/**
 * Resolves when the file is written or the first attempt has failed; then it retries until it succeeds. The
 * daemon serves on a full disk, so that callers can free space. Disposing the result removes the file.
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
      // There is no event for a disk that has room again.
      await delay(againMs, undefined, { ref: false, signal: end.signal }).catch(() => undefined);
      if (end.signal.aborted) return;
      try {
        await write();
        return log.info({ event: "daemon.record", outcome: "ok", path });
      } catch {
        // logged already
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
