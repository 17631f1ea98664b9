/**
 * Lines of JSON appended to a file, from a bounded queue: write() neither waits nor fails. Lines that do not
 * fit are counted, and a line says how many were dropped once writing works again.
 *
 * The path is opened again before a batch if the file was moved away, so that rotation needs no signal.
 */
import { constants } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { isErrno, type Logger } from "@forkd/base";
import { AppError, errorMessage, type AuditStatus } from "@forkd/contract";

type AuditOptions = {
  readonly path: string;
  readonly log: Logger;
  /** lines and bytes that may wait */
  readonly maxLines?: number;
  readonly maxBytes?: number;
  readonly retryMs?: number;
};

const maxBatchBytes = 256 * 1024;
const closeLimitMs = 2000;
// Opening a pipe without a reader must not block the thread.
const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

export class AuditLog implements AsyncDisposable {
  readonly #options: Required<AuditOptions>;
  #handle: FileHandle | undefined;
  #queue: Buffer[] = [];
  #queuedBytes = 0;
  /** dropped lines that no line reports yet */
  #unreported = 0;
  #dropped = 0;
  #error: string | undefined;
  #torn = false;
  #busy: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(options: AuditOptions) {
    this.#options = { maxLines: 20_000, maxBytes: 16 * 1024 * 1024, retryMs: 1000, ...options };
  }

  /** Throws if the path can never be written. A full disk does not keep the daemon from starting. */
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
      this.#unreported += 1;
      this.#dropped += 1;
      return;
    }
    this.#reportDropped();
    this.#push(line);
    this.#start();
  }

  /**
   * For use after a rotation: the next line goes to the file at the path now. Also retries a failed write at
   * once.
   */
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

  /** Resolves when everything is written, or writing fails. */
  async settled(): Promise<void> {
    while (this.#busy) await this.#busy;
  }

  /**
   * Writes what it can within two seconds: a file system that hangs does not keep the daemon from stopping.
   */
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

  #reportDropped(): void {
    if (this.#unreported === 0) return;
    const entry = { time: new Date().toISOString(), event: "audit.dropped", count: this.#unreported };
    this.#unreported = 0;
    this.#push(Buffer.from(`${JSON.stringify(entry)}\n`));
  }

  #start(): void {
    if (this.#busy) return;
    clearTimeout(this.#retry);
    this.#busy = this.#drain().finally(() => {
      this.#busy = undefined;
      // A line may have arrived after the last look at the queue.
      if (this.#error === undefined && this.#queue.length > 0) this.#start();
    });
  }

  async #drain(): Promise<void> {
    try {
      for (;;) {
        if (this.#queue.length === 0) this.#reportDropped();
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

  /** The file that is at the path now. */
  async #current(): Promise<FileHandle> {
    const { path } = this.#options;
    // reopen() may replace it during the waits below, and closes it when the batch is written.
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

  /**
   * Appends all or nothing, so that the file holds whole lines; if that fails, the next batch starts on a new
   * line.
   */
  async #append(handle: FileHandle, batch: Buffer): Promise<void> {
    const { size } = await handle.stat();
    const bytes = this.#torn ? Buffer.concat([Buffer.from("\n"), batch]) : batch;
    let done = 0;
    try {
      while (done < bytes.length) done += (await handle.write(bytes, done)).bytesWritten;
      this.#torn = false;
    } catch (error) {
      if (done > 0) await this.#undoAppend(handle, size, size + done);
      throw error;
    }
  }

  async #undoAppend(handle: FileHandle, before: number, after: number): Promise<void> {
    try {
      this.#torn = true;
      // Another size means that another process changed the file.
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
    // There is no event for a disk that has room again.
    this.#retry = setTimeout(() => this.#start(), this.#options.retryMs).unref();
  }
}
