/** Runs one worker thread to its answer. */
import { Worker } from "node:worker_threads";
import { fromErrorBody, type ErrorBody } from "@forkd/contract";

type WorkerMessage<Result> =
  { kind: "progress"; bytes: number } | { kind: "done"; made: Result } | { kind: "failed"; error: ErrorBody };

type Options = {
  signal?: AbortSignal | undefined;
  onBytes?: ((bytes: number) => void) | undefined;
};

/** Ends the thread when the signal fires. */
export async function runWorker<Result>(url: URL, data: unknown, options: Options = {}): Promise<Result> {
  const { signal, onBytes } = options;
  signal?.throwIfAborted();
  const worker = new Worker(url, { workerData: data });
  const stop = (): void => void worker.terminate();
  signal?.addEventListener("abort", stop, { once: true });
  try {
    return await new Promise<Result>((resolve, reject) => {
      worker.on("message", (message: WorkerMessage<Result>) => {
        if (message.kind === "progress") onBytes?.(message.bytes);
        else if (message.kind === "done") resolve(message.made);
        else reject(fromErrorBody(message.error));
      });
      worker.once("error", reject);
      worker.once("exit", () => {
        const reason: unknown = signal?.reason;
        reject(reason instanceof Error ? reason : new Error("The thread ended without an answer"));
      });
    });
  } finally {
    signal?.removeEventListener("abort", stop);
    await worker.terminate();
  }
}
