/**
 * The worker thread of one unpacking, which does what would block: hashes, decompression, many small writes. It
 * starts with the first call, and ends on request: files that a thread is opening when it is terminated, such as its
 * modules, stay open.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { within } from "@forkd/base";
import { fromErrorBody, type ErrorBody } from "@forkd/contract";
import type { UnpackMessage, UnpackRequest, UnpackWork } from "./unpack-worker.ts";

/** It only closes its files. */
const endMs = 30_000;

type Waiting = { resolve: () => void; reject: (error: Error) => void };

export class UnpackThread implements AsyncDisposable {
  readonly #work: UnpackWork;
  readonly #waiting = new Map<number, Waiting>();
  #started: { worker: Worker; ended: Promise<unknown> } | undefined;
  #next = 0;
  #ended: Error | undefined;

  constructor(work: UnpackWork) {
    this.#work = work;
  }

  #start() {
    const worker = new Worker(new URL("./unpack-worker.js", import.meta.url), { workerData: this.#work });
    worker.on("message", ({ id, error }: { id: number; error?: ErrorBody }) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiting?.reject(fromErrorBody(error));
      else waiting?.resolve();
    });
    worker.once("error", (error) => this.#end(error));
    worker.once("exit", () => this.#end(new Error("The thread that unpacks has ended")));
    const ended = once(worker, "exit").catch(() => undefined);
    return { worker, ended };
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }

  /** Takes the bytes of the request over if nothing else shares their memory. */
  call(request: UnpackRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#ended) {
        reject(this.#ended);
        return;
      }
      this.#started ??= this.#start();
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject });
      const message: UnpackMessage = { id, request };
      this.#started.worker.postMessage(message, transferable(request));
    });
  }

  /** Nothing is being called. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#started) return;
    const { worker, ended } = this.#started;
    const message: UnpackMessage = "end";
    worker.postMessage(message);
    const hasEnded = await within(
      ended.then(() => true),
      endMs,
    );
    if (hasEnded !== true) await worker.terminate();
  }
}

function transferable(request: UnpackRequest): ArrayBuffer[] {
  if (request.kind !== "chunk") return [];
  const { buffer, byteLength } = request.bytes;
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : [];
}
