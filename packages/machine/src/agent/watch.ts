/** Watches a directory in the guest. The agent runs it as a process with the permissions of the given user. */
import { createDeferred, type Deferred } from "@forkd/base";
import { AppError, type WatchEvent } from "@forkd/contract";
import type { AgentClient } from "./client.ts";
import { malformed, operate, type FileOptions } from "./file-operation.ts";
import type { AgentProcess } from "./process/process.ts";
import { BadRecord } from "./wire/records.ts";
import { changeEvent, startedEvent, WatchRecordParser } from "./wire/watch-records.ts";

/** The agent answers each byte of input with a record after everything that has happened so far. */
const syncByte = Buffer.from([1]);

export interface WatchOptions extends FileOptions {
  readonly recursive?: boolean;
  /** Describe the file in create, write and chmod events. */
  readonly includeEntry?: boolean;
}

/** Resolves when the directory is watched; rejects if it cannot be. */
export async function watchFiles(
  client: AgentClient,
  path: string,
  options: WatchOptions = {},
): Promise<FileWatch> {
  const watch = new FileWatch(client, path, options);
  await watch.begin();
  return watch;
}

/** The events, `started` first, for one consumer. Lasts until it is closed or its directory is removed. */
export class FileWatch implements AsyncIterableIterator<WatchEvent>, AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #events: AsyncGenerator<WatchEvent>;
  #process: AgentProcess | undefined;
  #first: IteratorResult<WatchEvent> | undefined;
  #syncs: Deferred<void>[] = [];
  #ended: Error | undefined;

  constructor(client: AgentClient, path: string, options: WatchOptions) {
    const { signal } = options;
    const stop = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
    this.#events = this.#read(client, path, { ...options, signal: stop });
  }

  async begin(): Promise<void> {
    this.#first = await this.#events.next();
  }

  async next(): Promise<IteratorResult<WatchEvent>> {
    const first = this.#first;
    this.#first = undefined;
    return first ?? this.#events.next();
  }

  /** Ends the watch, also while next() waits. */
  async return(): Promise<IteratorResult<WatchEvent>> {
    this.#stop.abort();
    this.#first = undefined;
    return this.#events.return(undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  /**
   * Resolves when the consumer has read all events of changes that were made before the call. Needs a consumer
   * that reads on. Rejects if the watch ends first.
   */
  async sync(): Promise<void> {
    if (this.#ended) throw this.#ended;
    const done = createDeferred<void>();
    this.#syncs.push(done);
    this.#process?.write(syncByte).catch((error: Error) => done.reject(error));
    // No deadline: it takes as long as the consumer. A guest that does not answer ends the watch.
    await done.promise;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async *#read(client: AgentClient, path: string, options: WatchOptions): AsyncGenerator<WatchEvent> {
    const { recursive = false, includeEntry: entries = false, user, signal } = options;
    const parser = new WatchRecordParser();
    const spec = { path, recursive, entries, stdin: true };
    let directory: string | undefined;
    try {
      const feed = async (process: AgentProcess): Promise<void> => {
        this.#process = process;
      };
      const pieces = operate(client, "watch", spec, { user, signal, mayIdle: true }, feed);
      for await (const piece of pieces) {
        for (const record of parser.push(piece)) {
          if (directory === undefined) {
            const started = startedEvent(path, record);
            directory = started.path;
            yield started;
          } else if (record.change === "sync") {
            // The consumer has asked for the next event, so it has handled those before.
            this.#syncs.shift()?.resolve();
          } else yield changeEvent(directory, record);
        }
      }
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      throw error instanceof BadRecord ? malformed(path, error) : error;
    } finally {
      this.#ended = new AppError("wrong_state", `Cannot wait for changes of "${path}": the watch has ended`);
      for (const sync of this.#syncs) sync.reject(this.#ended);
    }
  }
}
