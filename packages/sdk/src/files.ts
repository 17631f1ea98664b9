/** The files of one sandbox. */
import { AppError } from "@forkd/contract/wire";
import type { FileEntry } from "@forkd/contract";
import type { CallOptions, Client, Content } from "./client.ts";
import { concat } from "./output.ts";

/** Options of every call on files. */
export type UserOptions = CallOptions & {
  /** Acts as this user: name, uid, name:group or uid:gid; default: root. */
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
};
/** Options of the calls that read a file. */
export type ReadOptions = UserOptions & {
  /** First byte to read; default: 0. */
  offset?: number | undefined;
  /** Maximum number of bytes to read; default and 0: to the end. */
  limit?: number | undefined;
};

/** Reads and changes files of one sandbox. Paths are absolute paths in the guest. */
export class Files {
  readonly #client: Client;
  readonly #id: string;

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

  /** Reads a UTF-8 file into memory. */
  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** Reads a file in chunks. */
  async *readStream(path: string, options: ReadOptions = {}): AsyncGenerator<Uint8Array> {
    const { offset, limit, user } = options;
    try {
      yield* await this.#client.bytes("readFile", { id: this.#id, path, offset, limit, user }, options);
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
  write(path: string, content: Content, options: WriteOptions = {}): Promise<FileEntry> {
    const { mode, append, exclusive, user } = options;
    return this.#client.upload(
      "writeFile",
      { id: this.#id, path, mode, append, exclusive, user },
      content,
      options,
    );
  }

  /** Lists the entries of a directory. */
  list(path: string, options: UserOptions = {}): Promise<FileEntry[]> {
    return this.#client.call("listFiles", { id: this.#id, path, user: options.user }, options);
  }

  /** Describes a file, and with `follow` (default: false) the target of a link. */
  stat(path: string, options: UserOptions & { follow?: boolean | undefined } = {}): Promise<FileEntry> {
    const { follow, user } = options;
    return this.#client.call("statFile", { id: this.#id, path, follow, user }, options);
  }

  /** Makes a directory, and with `parents` (default: true) its missing parents; `mode` is octal text. */
  async mkdir(
    path: string,
    options: UserOptions & { mode?: string | undefined; parents?: boolean | undefined } = {},
  ): Promise<void> {
    const { mode, parents, user } = options;
    await this.#client.call("makeDirectory", { id: this.#id, path, mode, parents, user }, options);
  }

  /** Moves or renames a file or directory. */
  async move(from: string, to: string, options: UserOptions = {}): Promise<void> {
    await this.#client.call("moveFile", { id: this.#id, from, to, user: options.user }, options);
  }

  /** Removes a file, and with `recursive` (default: false) a directory with its content. */
  async remove(path: string, options: UserOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    const { recursive, user } = options;
    await this.#client.call("removeFile", { id: this.#id, path, recursive, user }, options);
  }

  /** Sets the mode (octal text), and with `recursive` (default: false) the mode of everything below. */
  async chmod(
    path: string,
    mode: string,
    options: UserOptions & { recursive?: boolean | undefined } = {},
  ): Promise<void> {
    const { recursive, user } = options;
    await this.#client.call("chmodFile", { id: this.#id, path, mode, recursive, user }, options);
  }
}
