/**
 * How much the layers of a machine may take on the host.
 *
 * QEMU tells when it writes beyond an offset of the top layer's file (once, then it must be told the next offset). The event is a
 * reason to look: what counts is what the files take. So a layer that was copied, or whose clusters were given back, ends nobody.
 */
import { stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";
import type { QmpClient } from "./qmp.ts";

/** so that a file that grows and shrinks at the limit is not looked at for every write */
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

  /** From now on the node is the one that is written; the last path is its file. */
  async watch(node: string, paths: readonly string[]): Promise<void> {
    this.#node = node;
    this.#paths = paths;
    await this.#arm();
  }

  /** What these files hold is about to become part of the machine's own layer. */
  async allow(paths: readonly string[]): Promise<void> {
    const files = await Promise.all(paths.map(sizeOf));
    this.#bytes += files.reduce((sum, { physical }) => sum + physical, 0);
  }

  [Symbol.dispose](): void {
    this.#done = true;
  }

  /** Until the machine ends, which closes the control socket. */
  async #follow(): Promise<void> {
    try {
      while (!this.#done) {
        await this.#qmp.event("BLOCK_WRITE_THRESHOLD", (data) => data["node-name"] === this.#node);
        if (!this.#done) await this.#arm();
      }
    } catch {
      // The machine has ended, and that is what its owner is told.
    }
  }

  /** Ends the machine, or names the offset at which to look again. */
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

/** A layer that was merged away meanwhile takes nothing. */
async function sizeOf(path: string): Promise<{ physical: number; length: number }> {
  try {
    const { blocks, size } = await stat(path);
    return { physical: blocks * blockBytes, length: size };
  } catch (error) {
    if (isErrno(error, "ENOENT")) return { physical: 0, length: 0 };
    throw error;
  }
}
