/** The worker thread of one unpacking, which does what would block: hashes, decompression, many small writes. */
import { Worker } from "node:worker_threads";
import { fromErrorBody, type ErrorBody } from "@forkd/contract";
import type { StagedFile } from "./expand.ts";
import type { UnpackRequest } from "./unpack-worker.ts";

type Waiting = { resolve: () => void; reject: (error: Error) => void };

export class UnpackThread implements AsyncDisposable {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  #next = 0;
  #ended: Error | undefined;

  constructor(files: readonly StagedFile[]) {
    this.#worker = new Worker(new URL("./unpack-worker.js", import.meta.url), { workerData: files });
    this.#worker.on("message", ({ id, error }: { id: number; error?: ErrorBody }) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiting?.reject(fromErrorBody(error));
      else waiting?.resolve();
    });
    this.#worker.once("error", (error) => this.#end(error));
    this.#worker.once("exit", () => this.#end(new Error("The thread that unpacks has ended")));
  }

  #end(error: Error): void {
    this.#ended ??= error;
    for (const { reject } of this.#waiting.values()) reject(this.#ended);
    this.#waiting.clear();
  }

  call(request: UnpackRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#ended) {
        reject(this.#ended);
        return;
      }
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, request });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}
