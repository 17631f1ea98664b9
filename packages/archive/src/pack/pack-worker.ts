/** Worker thread that makes blobs. Any message cancels it. */
import { parentPort, workerData } from "node:worker_threads";
import { toErrorBody } from "@forkd/contract/wire";
import { packFiles, type PackWork } from "./pack-files.ts";

/** Reports of progress are at least this far apart. */
const reportBytes = 4 << 20;

let unreported = 0;
const report = (done: number): void => {
  unreported += done;
  if (unreported < reportBytes) return;
  parentPort?.postMessage({ kind: "progress", bytes: unreported });
  unreported = 0;
};

const cancelled = new AbortController();
parentPort?.once("message", () => cancelled.abort());
try {
  // From pack.ts, which starts this thread.
  const made = await packFiles(workerData as PackWork, { signal: cancelled.signal, onBytes: report });
  parentPort?.postMessage({ kind: "progress", bytes: unreported });
  parentPort?.postMessage({ kind: "done", made });
} catch (error) {
  parentPort?.postMessage({ kind: "failed", error: toErrorBody(error) });
} finally {
  parentPort?.close();
}
