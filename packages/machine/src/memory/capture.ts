/**
 * The pages in which a VM differs from the memory file it was forked from, as a layer file.
 *
 * Arming and writing happen while the VM runs; only `take` needs it stopped. The layer file stays, whatever happens:
 * it belongs to the caller. Its header is left empty.
 */
import { AppError } from "@forkd/contract";
import { isAlive, type ProcessId } from "../host/procfs.ts";
import { PagesHelper } from "./helper.ts";

export type CaptureOptions = {
  /** the VMM */
  process: ProcessId;
  /** mapped privately by the VMM, all of it */
  memoryFile: string;
  memoryBytes: number;
  /** must not exist */
  layerPath: string;
  /** copies into the layer file itself: needs no memory, and room on disk is reserved before the pause */
  direct: boolean;
  /** ends the capture at any time; what is waited for rejects with its reason */
  signal?: AbortSignal | undefined;
};

export class MemoryCapture implements AsyncDisposable {
  /** diverged when the capture was armed */
  readonly expectedPages: number;
  #helper: PagesHelper;

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
        ...["--memory", options.memoryFile],
        ...["--bytes", String(options.memoryBytes)],
        ...["--layer", options.layerPath],
        ...(options.direct ? ["--direct"] : []),
      ],
      options.signal,
    );
    try {
      const [pages = 0] = await helper.answer("armed");
      // The helper holds on to the process it found; this tells that it found the right one.
      checkAlive(options.process);
      return new MemoryCapture(helper, pages);
    } catch (error) {
      await helper[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Copies the diverged pages; the VM must be stopped. What was taken before is forgotten. */
  async take(): Promise<{ pages: number; scanUs: number; copyUs: number }> {
    const [pages = 0, scanUs = 0, copyUs = 0] = await this.#helper.answer("taken", "take");
    return { pages, scanUs, copyUs };
  }

  /** Completes the data and extents of the layer file. */
  async write(): Promise<{ pages: number; extents: number; fileBytes: number }> {
    const [pages = 0, extents = 0, fileBytes = 0] = await this.#helper.answer("written", "write");
    return { pages, extents, fileBytes };
  }

  /** Writes what was taken into a file of the size of the memory. */
  async apply(path: string): Promise<void> {
    if (/[\n\r]/.test(path)) throw new AppError("invalid_request", "A path must not hold a line break");
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
