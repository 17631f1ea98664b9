/** The thread in which unpack-in-worker.ts unpacks. */
import { parentPort, workerData } from "node:worker_threads";
import { toErrorBody } from "@forkd/contract";
import { requireSpace } from "../cache.ts";
import { unpackLayers, UnpackFault, type UnpackInput } from "./unpack.ts";
import type { WorkerMessage } from "./unpack-in-worker.ts";

const send = (message: WorkerMessage): void => parentPort?.postMessage(message);

const cancel = new AbortController();
parentPort?.on("message", () => cancel.abort(new Error("the caller cancelled it")));

try {
  const input = workerData as UnpackInput;
  const result = await unpackLayers(input, {
    signal: cancel.signal,
    onProgress: (step, message) => send({ type: "progress", step, message }),
    // The tree, and the image that is made from it.
    onSize: (bytes) => requireSpace(input.tree, 2 * bytes),
  });
  send({ type: "done", result });
} catch (error) {
  send(describe(error));
} finally {
  parentPort?.close();
}

function describe(error: unknown): WorkerMessage {
  if (error instanceof UnpackFault) return { type: "fault", message: error.message };
  return { type: "error", error: toErrorBody(error) };
}
