/**
 * Captures the pages in which a VM differs from the memory file it was forked from, as a layer file.
 *
 * Arming, pre-copying and writing happen while the VM runs; only `take` needs it paused. The layer file belongs
 * to the caller and is never removed here. Its header stays empty.
 */
import { AppError } from "@forkd/contract";
import { isAlive, type ProcessId } from "../host/procfs.ts";
import { PagesHelper } from "./helper.ts";

export type CaptureOptions = {
  /** the VMM */
  process: ProcessId;
  /** the VMM maps all of it privately */
  memoryFile: string;
  /** the memory file is a view, and the VMM maps the files that it names */
  isView?: boolean;
  memoryBytes: number;
  /** must not exist */
  layerPath: string;
  /** copy to the layer file directly: needs no memory, and reserves disk space before the pause */
  direct: boolean;
  /** descriptor of the VMM that may track its writes; ignored with `direct`, or if it cannot */
  tracker?: number | undefined;
  /** ends the capture at any time; a pending call rejects with its reason */
  signal?: AbortSignal | undefined;
};

export class MemoryCapture implements AsyncDisposable {
  /** number of changed pages when the capture was armed */
  readonly expectedPages: number;
  #helper: PagesHelper;
  #released: Promise<void> | undefined;

  private constructor(helper: PagesHelper, expectedPages: number) {
    this.#helper = helper;
    this.expectedPages = expectedPages;
  }

  /** Starts the helper and waits until it is armed. */
  static async arm(options: CaptureOptions): Promise<MemoryCapture> {
    options.signal?.throwIfAborted();
    checkAlive(options.process);
    const helper = new PagesHelper(
      [
        "capture",
        ...["--pid", String(options.process.pid)],
        ...[options.isView === true ? "--view" : "--memory", options.memoryFile],
        ...["--bytes", String(options.memoryBytes)],
        ...["--layer", options.layerPath],
        ...(options.direct ? ["--direct"] : []),
        ...(options.tracker === undefined ? [] : ["--track", String(options.tracker)]),
      ],
      options.signal,
    );
    try {
      const [pages = 0] = await helper.answer("armed");
      // The helper keeps a handle of the process it found; this check proves that it is the right one.
      checkAlive(options.process);
      return new MemoryCapture(helper, pages);
    } catch (error) {
      await helper[Symbol.asyncDispose]();
      throw error;
    }
  }

  /**
   * Copies changed pages while the VM runs, until few are left or more rounds would not help. `take` then copies
   * only those that were written since. Does nothing, in no rounds, if writes are not tracked.
   */
  async precopy({ brief = false } = {}): Promise<{ pages: number; rounds: number }> {
    const line = brief ? "precopy brief" : "precopy";
    const [pages = 0, rounds = 0] = await this.#helper.answer("precopied", line);
    return { pages, rounds };
  }

  /** Copies the changed pages; the VM must be paused. Replaces an earlier copy. */
  async take(): Promise<{ pages: number; scanUs: number; copyUs: number; copied: number }> {
    const [pages = 0, scanUs = 0, copyUs = 0, copied = 0] = await this.#helper.answer("taken", "take");
    return { pages, scanUs, copyUs, copied };
  }

  /**
   * Removes from the VM what precopy() has set up; the VM runs. Later calls wait for it. The next capture of this
   * VM must begin after it.
   */
  release(): Promise<void> {
    this.#released ??= this.#helper.answer("untracked", "untrack").then(() => undefined);
    // A failure is reported by the call that waits for it.
    this.#released.catch(() => undefined);
    return this.#released;
  }

  /** Completes the data and extents of the layer file. */
  async write(): Promise<{ pages: number; extents: number; fileBytes: number }> {
    await this.#released;
    const [pages = 0, extents = 0, fileBytes = 0] = await this.#helper.answer("written", "write");
    return { pages, extents, fileBytes };
  }

  /** Writes the copied pages to a file with the size of the memory. */
  async apply(path: string): Promise<void> {
    if (/[\n\r]/.test(path)) throw new AppError("invalid_request", "A path must not contain a line break");
    await this.#released;
    await this.#helper.answer("applied", `apply ${path}`);
  }

  /** Ends the helper. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#helper[Symbol.asyncDispose]();
  }
}

function checkAlive(process: ProcessId): void {
  if (isAlive(process)) return;
  throw new AppError("engine_failed", `Cannot capture the memory: process ${process.pid} has exited`);
}
