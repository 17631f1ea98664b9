/**
 * The file `sandbox.json` of one sandbox: when it is written, renamed and removed. What is in it: record.ts.
 */
import { rename, rm } from "node:fs/promises";
import { giveName, Mutex, writeFileBeside } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { SandboxHome } from "./paths.ts";
import type { SandboxRecord } from "./record.ts";

/** The only writer of the record of one sandbox. */
export class RecordFile {
  readonly #path: string;
  readonly #writes = new Mutex();
  #staged: string | undefined;
  #isRemoved = false;
  #isHandedOver = false;

  constructor(home: SandboxHome) {
    this.#path = home.recordPath;
  }

  /** Writes and syncs the record under a temporary name, which other daemons ignore. */
  stage(record: SandboxRecord): Promise<void> {
    return this.#writes.run(async () => {
      this.#staged = await this.#writeBeside(record);
    });
  }

  /** Gives the staged record its name. Does nothing if another record was written since. */
  commit(): Promise<void> {
    return this.#writes.run(async () => {
      const staged = this.#staged;
      if (staged === undefined) return;
      this.#staged = undefined;
      await this.#refuseIfClosed(staged);
      // Not synced: a crash of the host ends the machine too, and without it there is nothing to adopt.
      await rename(staged, this.#path);
    });
  }

  write(record: SandboxRecord): Promise<void> {
    return this.#writes.run(async () => {
      const path = await this.#writeBeside(record);
      await this.#refuseIfClosed(path);
      await giveName(path, this.#path);
      if (this.#staged !== undefined) await rm(this.#staged, { force: true });
      this.#staged = undefined;
    });
  }

  /** Removes the record for good: every later write fails. */
  remove(): Promise<void> {
    this.#isRemoved = true;
    return this.#writes.run(() => rm(this.#path, { force: true }));
  }

  /**
   * Leaves the record to the next daemon: every later write fails. Resolves when nothing is being written.
   */
  handOver(): Promise<void> {
    this.#isHandedOver = true;
    return this.#writes.run(async () => undefined);
  }

  #writeBeside(record: SandboxRecord): Promise<string> {
    return writeFileBeside(this.#path, `${JSON.stringify(record, null, 2)}\n`, 0o600);
  }

  async #refuseIfClosed(path: string): Promise<void> {
    if (this.#isRemoved) {
      await rm(path, { force: true });
      throw new AppError("cancelled", "The sandbox was killed");
    }
    if (this.#isHandedOver) {
      await rm(path, { force: true });
      throw new AppError("daemon_stopping", "The daemon is stopping", { remedy: { action: "retry_later" } });
    }
  }
}
