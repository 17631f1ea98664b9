/**
 * Lines of JSON appended to a file, from a queue of bounded length: writing a line never waits and never fails for the one
 * who writes it. What does not fit is counted, and a line says how many once lines can be written again.
 *
 * Before each batch the name is looked up again, so a file that was moved away or truncated is followed without being told.
 */
import { constants } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { isErrno, type Logger } from "@forkd/base";
import { AppError, errorMessage, type AuditStatus } from "@forkd/contract";

export type AuditOptions = {
  readonly path: string;
  readonly log: Logger;
  /** lines and bytes that may wait */
  readonly maxLines?: number;
  readonly maxBytes?: number;
  readonly retryMs?: number;
};

const maxBatchBytes = 256 * 1024;
const closeLimitMs = 2000;
// A pipe that nobody reads must not hold the thread that opens it.
const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

export class AuditLog implements AsyncDisposable {
  readonly #options: Required<AuditOptions>;
  #handle: FileHandle | undefined;
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  /** lines lost that no line tells of yet */
  #untold = 0;
  #dropped = 0;
  #error: string | undefined;
  #torn = false;
  #busy: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(options: AuditOptions) {
    this.#options = { maxLines: 20_000, maxBytes: 16 * 1024 * 1024, retryMs: 1000, ...options };
  }

  /** Refuses a place where it could never write; a full disk is no reason not to start. */
  static async open(options: AuditOptions): Promise<AuditLog> {
    const audit = new AuditLog(options);
    try {
      await audit.#current();
    } catch (error) {
      if (!isErrno(error, "ENOSPC", "EDQUOT")) {
        const why = errorMessage(error);
        throw new AppError("host_not_ready", `Cannot open the audit log ${options.path}: ${why}`, {
          remedy: { action: "change_setting", setting: "audit_log", to: 'another path, or to "off"' },
          cause: error,
        });
      }
      audit.#failed(error);
    }
    return audit;
  }

  write(entry: Readonly<Record<string, unknown>>): void {
    if (this.#closed) return;
    const line = Buffer.from(`${JSON.stringify({ time: new Date().toISOString(), ...entry })}\n`);
    if (!this.#hasRoom(line.length)) {
      this.#untold += 1;
      this.#dropped += 1;
      return;
    }
    this.#tellOfLost();
    this.#push(line);
    this.#start();
  }

  /** After a rotation: the next line goes to the file that has the name now. Also tries again at once. */
  reopen(): void {
    const old = this.#handle;
    this.#handle = undefined;
    void (async () => {
      await this.#busy;
      await old?.close();
    })().catch((error: unknown) => this.#options.log.warn({ event: "audit.close", error: String(error) }));
    this.#start();
  }

  status(): AuditStatus {
    return {
      ok: this.#error === undefined,
      dropped: this.#dropped,
      ...(this.#error !== undefined && { error: this.#error }),
    };
  }

  /** Resolves when everything is written, or cannot be at the moment. */
  async settled(): Promise<void> {
    while (this.#busy) await this.#busy;
  }

  /** Writes what it can within a moment: a file system that hangs does not keep the daemon from ending. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#start();
    this.#closed = true;
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<void>((resolve) => (timer = setTimeout(resolve, closeLimitMs)));
    await Promise.race([this.#finish(), limit]);
    clearTimeout(timer);
    clearTimeout(this.#retry);
  }

  async #finish(): Promise<void> {
    await this.settled();
    const handle = this.#handle;
    this.#handle = undefined;
    if (this.#queue.length > 0) {
      this.#options.log.error({ event: "audit.lost", lines: this.#queue.length, error: this.#error });
    }
    try {
      await handle?.sync();
    } finally {
      await handle?.close();
    }
  }

  #hasRoom(bytes: number): boolean {
    const { maxLines, maxBytes } = this.#options;
    return this.#queue.length < maxLines && this.#queuedBytes + bytes <= maxBytes;
  }

  #push(line: Buffer): void {
    this.#queue.push(line);
    this.#queuedBytes += line.length;
  }

  #tellOfLost(): void {
    if (this.#untold === 0) return;
    const entry = { time: new Date().toISOString(), event: "audit.dropped", count: this.#untold };
    this.#untold = 0;
    this.#push(Buffer.from(`${JSON.stringify(entry)}\n`));
  }

  #start(): void {
    if (this.#busy) return;
    clearTimeout(this.#retry);
    this.#busy = this.#drain().finally(() => {
      this.#busy = undefined;
      // A line may have come between the last look at the queue and now.
      if (this.#error === undefined && this.#queue.length > 0) this.#start();
    });
  }

  async #drain(): Promise<void> {
    try {
      for (;;) {
        if (this.#queue.length === 0) this.#tellOfLost();
        if (this.#queue.length === 0) return;
        const count = this.#batchLength();
        const batch = Buffer.concat(this.#queue.slice(0, count));
        await this.#append(await this.#current(), batch);
        this.#queue.splice(0, count);
        this.#queuedBytes -= batch.length;
        this.#recovered();
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  #batchLength(): number {
    let bytes = 0;
    let count = 0;
    for (const line of this.#queue) {
      bytes += line.length;
      if (count > 0 && bytes > maxBatchBytes) break;
      count += 1;
    }
    return count;
  }

  /** The file that has the name now. */
  async #current(): Promise<FileHandle> {
    const { path } = this.#options;
    // reopen() may take it away while this waits, and closes it when the batch is written.
    const known = this.#handle;
    if (known) {
      const [own, named] = await Promise.all([
        known.stat(),
        stat(path).catch((error: unknown) => {
          if (isErrno(error, "ENOENT")) return undefined;
          throw error;
        }),
      ]);
      if (named && own.ino === named.ino && own.dev === named.dev) return known;
      if (this.#handle === known) {
        this.#handle = undefined;
        await known.close();
      }
    }
    const handle = await open(path, flags, 0o600);
    if (!(await handle.stat()).isFile()) {
      await handle.close();
      throw new Error(`${path} is not a regular file`);
    }
    this.#torn = false;
    return (this.#handle = handle);
  }

  /** All of it or nothing, so that the file holds whole lines; where that fails, the next batch starts on a new line. */
  async #append(handle: FileHandle, batch: Buffer): Promise<void> {
    const { size } = await handle.stat();
    const bytes = this.#torn ? Buffer.concat([Buffer.from("\n"), batch]) : batch;
    let done = 0;
    try {
      while (done < bytes.length) done += (await handle.write(bytes, done)).bytesWritten;
      this.#torn = false;
    } catch (error) {
      if (done > 0) await this.#takeBack(handle, size, size + done);
      throw error;
    }
  }

  async #takeBack(handle: FileHandle, before: number, after: number): Promise<void> {
    try {
      this.#torn = true;
      // Another size means that somebody else changed the file meanwhile.
      if ((await handle.stat()).size !== after) return;
      await handle.truncate(before);
      this.#torn = false;
    } catch (error) {
      this.#options.log.warn({ event: "audit.torn", error: String(error) });
    }
  }

  #recovered(): void {
    if (this.#error === undefined) return;
    this.#error = undefined;
    this.#options.log.info({ event: "audit.write", outcome: "ok", dropped: this.#dropped });
  }

  #failed(error: unknown): void {
    const message = errorMessage(error);
    if (this.#error === undefined) {
      this.#options.log.error({
        event: "audit.write",
        outcome: "failed",
        path: this.#options.path,
        error: message,
      });
    }
    this.#error = message;
    clearTimeout(this.#retry);
    if (this.#closed) return;
    // Nothing tells when a disk has room again.
    this.#retry = setTimeout(() => this.#start(), this.#options.retryMs).unref();
  }
}
