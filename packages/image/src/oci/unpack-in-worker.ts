/**
 * Unpacks in its own thread: decompressing, hashing and merging an image takes seconds of CPU time, which
 * the event loop of the daemon does not have.
 */
import { Worker } from "node:worker_threads";
import { AppError, fromErrorBody, type ErrorBody } from "@forkd/contract";
import { cancelled, type BuildContext } from "../context.ts";
import type { Unpacked, UnpackInput } from "./unpack.ts";

export type WorkerMessage =
  | { type: "progress"; step: string; message: string }
  | { type: "done"; result: Unpacked }
  /** the image cannot be used */
  | { type: "fault"; message: string }
  | { type: "error"; error: ErrorBody };

/** Throws `invalid_image` with the reason after "Cannot use IMAGE: ". */
export async function unpackInWorker(
  input: UnpackInput & { image: string },
  { signal, onProgress }: BuildContext,
): Promise<Unpacked> {
  const { image, ...workerData } = input;
  const worker = new Worker(new URL("./unpack-worker.js", import.meta.url), { workerData });
  const cancel = (): void => worker.postMessage("cancel");
  signal?.addEventListener("abort", cancel, { once: true });
  let last: WorkerMessage | undefined;
  worker.on("message", (message: WorkerMessage) => {
    if (message.type === "progress") onProgress?.(message.step, message.message);
    else last = message;
  });
  try {
    // It ends when everything that it has started has ended.
    await new Promise<void>((resolve, reject) => {
      worker.once("error", reject);
      worker.once("exit", () => resolve());
    });
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
  if (last?.type === "done") return last.result;
  if (signal?.aborted) throw cancelled(signal.reason);
  if (last?.type === "fault") throw new AppError("invalid_image", `Cannot use "${image}": ${last.message}`);
  if (last?.type !== "error") throw new Error(`Cannot unpack "${image}": the thread ended`);
  throw fromErrorBody(last.error);
}
