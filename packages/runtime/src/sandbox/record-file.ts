/**
 * The file `sandbox.json` of one sandbox: when it is written, renamed and removed. What is in it: record.ts.
 */
import { rename, rm } from "node:fs/promises";
import { giveName, Mutex, writeFileBeside } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { SandboxHome } from "./paths.ts";
import type { SandboxRecord } from "./record.ts";

/** The one writer of one sandbox's record. */
export class RecordFile {
  readonly #path: string;
  readonly #writes = new Mutex();
  #staged: string | undefined;
  #isGone = false;
  #isLeft = false;

  constructor(home: SandboxHome) {
    this.#path = home.recordPath;
  }

  /** Writes it, synced, under a name that means nothing yet. */
  stage(record: SandboxRecord): Promise<void> {
    return this.#writes.run(async () => {
      this.#staged = await this.#writeBeside(record);
    });
  }

  /** Gives what was staged its name. Does nothing if another record was written since. */
  commit(): Promise<void> {
    return this.#writes.run(async () => {
      const staged = this.#staged;
      if (staged === undefined) return;
      this.#staged = undefined;
      await this.#refuseIfOver(staged);
      // Not synced: the machine does not outlive the host, and without it there is nothing to be known.
      await rename(staged, this.#path);
    });
  }

  write(record: SandboxRecord): Promise<void> {
    return this.#writes.run(async () => {
      const path = await this.#writeBeside(record);
      await this.#refuseIfOver(path);
      await giveName(path, this.#path);
      if (this.#staged !== undefined) await rm(this.#staged, { force: true });
      this.#staged = undefined;
    });
  }

  /** From now on the sandbox is not one any more, and nothing can make it one again. */
  remove(): Promise<void> {
    this.#isGone = true;
    return this.#writes.run(() => rm(this.#path, { force: true }));
  }

  /** Stays as it is: it is the next daemon's to write. Resolves when nothing is being written. */
  leave(): Promise<void> {
    this.#isLeft = true;
    return this.#writes.run(async () => undefined);
  }

  #writeBeside(record: SandboxRecord): Promise<string> {
    return writeFileBeside(this.#path, `${JSON.stringify(record, null, 2)}\n`, 0o600);
  }

  async #refuseIfOver(path: string): Promise<void> {
    if (this.#isGone) {
      await rm(path, { force: true });
      throw new AppError("cancelled", "The sandbox was killed");
    }
    if (this.#isLeft) {
      await rm(path, { force: true });
      throw new AppError("daemon_stopping", "The daemon is stopping. Ask the next one");
    }
  }
}
