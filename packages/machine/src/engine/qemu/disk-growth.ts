/**
 * Enforces the limit on the disk space that a machine's layers use on the host.
 *
 * QEMU reports once when it writes beyond a given offset of the top layer's file, then needs the next offset.
 * The event only triggers a check of the real disk usage, so a collapse or discarded clusters never stop a
 * machine.
 */
import { stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";
import type { QmpClient } from "./qmp.ts";

/** minimum distance to the next offset, so that a file near the limit is not checked on every write */
const stepBytes = 1024 * 1024;
const blockBytes = 512;

export class DiskGrowth implements Disposable {
  #bytes: number;
  readonly #reason: string;
  readonly #execute: (command: string, args?: Record<string, unknown>) => Promise<unknown>;
  readonly #qmp: QmpClient;
  readonly #onExceeded: (reason: string) => void;
  #node = "";
  #paths: readonly string[] = [];
  #done = false;

  constructor(options: {
    bytes: number;
    reason: string;
    execute: (command: string, args?: Record<string, unknown>) => Promise<unknown>;
    qmp: QmpClient;
    onExceeded: (reason: string) => void;
  }) {
    this.#bytes = options.bytes;
    this.#reason = options.reason;
    this.#execute = options.execute;
    this.#qmp = options.qmp;
    this.#onExceeded = options.onExceeded;
    void this.#follow();
  }

  /** Watches the node that QEMU writes to from now on; the last path is its file. */
  async watch(node: string, paths: readonly string[]): Promise<void> {
    this.#node = node;
    this.#paths = paths;
    await this.#arm();
  }

  /** Raises the limit by the size of these files, which are about to be copied to the machine's layer. */
  async allow(paths: readonly string[]): Promise<void> {
    const files = await Promise.all(paths.map(sizeOf));
    this.#bytes += files.reduce((sum, { physical }) => sum + physical, 0);
  }

  [Symbol.dispose](): void {
    this.#done = true;
  }

  /** Runs until the machine exits, which closes the control socket. */
  async #follow(): Promise<void> {
    try {
      for (let crossed = this.#crossed(); !this.#done;) {
        await crossed;
        // Listen before the next offset is set: a fast writer may cross it at once.
        crossed = this.#crossed();
        if (!this.#done) await this.#arm();
      }
    } catch {
      // The machine has exited, which its owner learns from `exited`.
    }
  }

  #crossed(): Promise<unknown> {
    const event = this.#qmp.event("BLOCK_WRITE_THRESHOLD", (data) => data["node-name"] === this.#node);
    event.catch(() => undefined);
    return event;
  }

  /** Reports the excess, or sets the offset for the next check. */
  async #arm(): Promise<void> {
    const files = await Promise.all(this.#paths.map(sizeOf));
    const taken = files.reduce((sum, { physical }) => sum + physical, 0);
    if (taken > this.#bytes) {
      this.#done = true;
      this.#onExceeded(this.#reason);
      return;
    }
    const next = (files.at(-1)?.length ?? 0) + Math.max(this.#bytes - taken, stepBytes);
    await this.#execute("block-set-write-threshold", { "node-name": this.#node, "write-threshold": next });
  }
}

/** A layer that a collapse has removed has size 0. */
async function sizeOf(path: string): Promise<{ physical: number; length: number }> {
  try {
    const { blocks, size } = await stat(path);
    return { physical: blocks * blockBytes, length: size };
  } catch (error) {
    if (isErrno(error, "ENOENT")) return { physical: 0, length: 0 };
    throw error;
  }
}
