/** The files of one sandbox. */
import { AppError } from "@forkd/contract/wire";
import type { RequestOf } from "@forkd/contract";
import type { CallOptions, Client, Content } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { requestOf, shown } from "./convert/request.ts";
import { isForkdError } from "./errors.ts";
import { concat } from "./output.ts";
import { Stream } from "./stream.ts";
import type { FileEntry, WatchEvent } from "./types.ts";

/** Options of every call on files. */
export type UserOptions = CallOptions & {
  /** Acts as this user: name, uid, name:group or uid:gid; default: "root". */
  user?: string | undefined;
};
/** Options of `files.write()`. */
export type WriteOptions = UserOptions & {
  /** Mode of a new file as octal text, an existing file keeps its mode; default: "0644". */
  mode?: string | undefined;
  /** Appends to the file instead of replacing it; default: false. */
  append?: boolean | undefined;
  /** Refuses to replace an existing file; default: false. */
  exclusive?: boolean | undefined;
  /** Writes into the file instead of replacing it at the end, so that its inode stays; default: false. */
  inPlace?: boolean | undefined;
};
/** Options of `files.watch()`. */
export type WatchOptions = UserOptions & {
  /** Also watches all directories below, new ones too; default: false. */
  recursive?: boolean | undefined;
  /** Describes the file (`entry`) in create, write and chmod events; default: false. */
  includeEntry?: boolean | undefined;
};
/** Options of the calls that read a file. */
export type ReadOptions = UserOptions & {
  /** First byte to read; default: 0. */
  offset?: number | undefined;
  /** Maximum number of bytes to read; default and 0: to the end. */
  limit?: number | undefined;
};

/** Reads and changes files of one sandbox. Paths in the guest are absolute, or begin with "~/". */
export class Files {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /** Reads a file into memory. */
  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.readStream(path, options)) chunks.push(chunk);
    return concat(chunks);
  }

  /** Reads a UTF-8 file into memory; other bytes become U+FFFD. */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.read(path, options));
  }

  /** Reads a file in chunks. */
  readStream(path: string, options: ReadOptions = {}): Stream<Uint8Array> {
    return new Stream((signal) => this.#chunks(path, { ...options, signal }), options.signal);
  }

  async *#chunks(path: string, options: ReadOptions): AsyncGenerator<Uint8Array> {
    const request = requestOf("readFile", { id: this.#id, path }, options);
    try {
      yield* await this.#client.bytes("readFile", request, options);
    } catch (error) {
      throw await this.#whoCut(error, path, options);
    }
  }

  /** The daemon can only cut an answer that has begun. If it still answers, the guest was the reason. */
  async #whoCut(error: unknown, path: string, { signal }: CallOptions): Promise<unknown> {
    if (!(error instanceof AppError) || error.details["cut"] !== true) return error;
    const about = await this.#client.call("getSandbox", { id: this.#id }, { signal }).catch(() => undefined);
    if (about === undefined) return error;
    const message = `The transfer of "${path}" from ${this.#id} was cut`;
    const facts = { details: { path, cut: true }, cause: error };
    if (about.state === "dead")
      return new AppError(
        "sandbox_dead",
        `${message}: the sandbox is dead (${about.reason ?? "unknown reason"})`,
        facts,
      );
    if (about.state === "paused")
      return new AppError("sandbox_paused", `${message}: the sandbox was paused`, facts);
    return new AppError("agent_unreachable", `${message}: the guest did not send the rest`, {
      ...facts,
      remedy: { action: "show_logs", id: this.#id },
    });
  }

  /** Writes a file. Unless it appends, it replaces the file in one step, after all content has arrived. */
  async write(path: string, content: Content, options: WriteOptions = {}): Promise<FileEntry> {
    // Without content the request would have an empty body, and the file would lose its content.
    if (!isContent(content))
      throw new AppError(
        "invalid_request",
        `The content of "${path}" must be text, bytes or an async iterable of bytes, not ${shown(content)}`,
      );
    const request = requestOf("writeFile", { id: this.#id, path }, options);
    return fromWire(await this.#client.upload("writeFile", request, content, options));
  }

  /** Lists the entries of a directory. */
  list(
    path: string,
    options: UserOptions & {
      /** Levels below the directory, 1 to 64; default: 1. */
      depth?: number | undefined;
    } = {},
  ): Promise<FileEntry[]> {
    return this.#client.invoke("listFiles", { id: this.#id, path }, options);
  }

  /**
   * Watches a directory. Resolves when the watch has begun: later changes are events, with paths relative to the
   * directory. Leaving the loop, abort or `await using` ends it.
   */
  async watch(path: string, options: WatchOptions = {}): Promise<Stream<WatchEvent>> {
    const request = requestOf("watchFiles", { id: this.#id, path }, options);
    const stream = new Stream((signal) => this.#changes(request, { ...options, signal }), options.signal);
    const first = await stream.next();
    if (first.done === true)
      throw new AppError("daemon_unreachable", `The watch of "${path}" ended before it began`);
    return stream;
  }

  /** The first event says that the watch has begun; it has no other use. */
  async *#changes(request: RequestOf<"watchFiles">, options: CallOptions): AsyncGenerator<WatchEvent> {
    for await (const event of await this.#client.lines("watchFiles", request, options))
      yield fromWire(event) as WatchEvent;
  }

  /** Describes a file. */
  stat(
    path: string,
    options: UserOptions & {
      /** Describes the target of a link; default: false. */
      follow?: boolean | undefined;
    } = {},
  ): Promise<FileEntry> {
    return this.#client.invoke("statFile", { id: this.#id, path }, options);
  }

  /** True if there is a file, a directory or a link. */
  async exists(path: string, options: UserOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (isForkdError(error, "file_not_found")) return false;
      throw error;
    }
  }

  /** Makes a directory. */
  async mkdir(
    path: string,
    options: UserOptions & {
      /** Mode as octal text; default: "0755". */
      mode?: string | undefined;
      /** Also makes missing parents, and accepts a directory that exists; default: true. */
      parents?: boolean | undefined;
    } = {},
  ): Promise<void> {
    await this.#client.invoke("makeDirectory", { id: this.#id, path }, options);
  }

  /** Moves or renames a file or directory. */
  async move(from: string, to: string, options: UserOptions = {}): Promise<void> {
    await this.#client.invoke("moveFile", { id: this.#id, from, to }, options);
  }

  /** Removes a file or an empty directory. */
  async remove(
    path: string,
    options: UserOptions & {
      /** Removes a directory with its content; default: false. */
      recursive?: boolean | undefined;
    } = {},
  ): Promise<void> {
    await this.#client.invoke("removeFile", { id: this.#id, path }, options);
  }

  /** Sets the mode, as octal text such as "0644". */
  async chmod(
    path: string,
    mode: string,
    options: UserOptions & {
      /** Also sets the mode of everything below; default: false. */
      recursive?: boolean | undefined;
    } = {},
  ): Promise<void> {
    await this.#client.invoke("chmodFile", { id: this.#id, path, mode }, options);
  }
}

function isContent(value: unknown): boolean {
  if (typeof value === "string" || value instanceof Uint8Array) return true;
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}
