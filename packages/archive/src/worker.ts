/** Runs one worker thread to its answer. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { fromErrorBody, type ErrorBody } from "@forkd/contract";

type WorkerMessage<Result> =
  { kind: "progress"; bytes: number } | { kind: "done"; made: Result } | { kind: "failed"; error: ErrorBody };

type Options = {
  signal?: AbortSignal | undefined;
  onBytes?: ((bytes: number) => void) | undefined;
};

/**
 * Sends the thread a message when the signal fires, and waits for its end: files that a thread is opening when it
 * is terminated, such as its modules, stay open.
 */
export async function runWorker<Result>(url: URL, data: unknown, options: Options = {}): Promise<Result> {
  const { signal, onBytes } = options;
  signal?.throwIfAborted();
  const worker = new Worker(url, { workerData: data });
  const ended = once(worker, "exit");
  const cancel = (): void => worker.postMessage("cancel");
  signal?.addEventListener("abort", cancel, { once: true });
  let last: Exclude<WorkerMessage<Result>, { kind: "progress" }> | undefined;
  worker.on("message", (message: WorkerMessage<Result>) => {
    if (message.kind === "progress") onBytes?.(message.bytes);
    else last = message;
  });
  try {
    await ended;
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
  if (last?.kind === "done") return last.made;
  signal?.throwIfAborted();
  if (last?.kind !== "failed") throw new Error("The thread ended without an answer");
  throw fromErrorBody(last.error);
}
