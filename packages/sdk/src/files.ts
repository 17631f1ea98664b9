/** Files in one sandbox. Paths are absolute in the guest. */
import type { FileEntry } from "@forkd/contract";
import type { CallOptions, Client, Content } from "./client.ts";
import { concat } from "./output.ts";

export type UserOptions = CallOptions & { user?: string | undefined };
/** `mode` is octal text such as "0644" */
export type WriteOptions = UserOptions & {
  mode?: string | undefined;
  append?: boolean | undefined;
  /** refuse to replace a file that is there */
  exclusive?: boolean | undefined;
};
/** `limit` 0 = to the end */
export type ReadOptions = UserOptions & { offset?: number | undefined; limit?: number | undefined };

export class Files {
  readonly #client: Client;
  readonly #id: string;

  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.readStream(path, options)) chunks.push(chunk);
    return concat(chunks);
  }

  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  async *readStream(path: string, options: ReadOptions = {}): AsyncGenerator<Uint8Array> {
    const { offset, limit, user } = options;
    yield* await this.#client.bytes("readFile", { id: this.#id, path, offset, limit, user }, options);
  }

  /** The file is replaced at once when all of the content has arrived, unless it is appended to. */
  write(path: string, content: Content, options: WriteOptions = {}): Promise<FileEntry> {
    const { mode, append, exclusive, user } = options;
    return this.#client.upload(
      "writeFile",
      { id: this.#id, path, mode, append, exclusive, user },
      content,
      options,
    );
  }

  list(path: string, options: UserOptions = {}): Promise<FileEntry[]> {
    return this.#client.call("listFiles", { id: this.#id, path, user: options.user }, options);
  }

  /** Facts of the link itself unless `follow`. */
  stat(path: string, options: UserOptions & { follow?: boolean | undefined } = {}): Promise<FileEntry> {
    const { follow, user } = options;
    return this.#client.call("statFile", { id: this.#id, path, follow, user }, options);
  }

  async mkdir(
    path: string,
    options: UserOptions & { mode?: string | undefined; parents?: boolean | undefined } = {},
  ): Promise<void> {
    const { mode, parents, user } = options;
    await this.#client.call("makeDirectory", { id: this.#id, path, mode, parents, user }, options);
  }

  async move(from: string, to: string, options: UserOptions = {}): Promise<void> {
    await this.#client.call("moveFile", { id: this.#id, from, to, user: options.user }, options);
  }

  async remove(path: string, options: UserOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    const { recursive, user } = options;
    await this.#client.call("removeFile", { id: this.#id, path, recursive, user }, options);
  }

  async chmod(
    path: string,
    mode: string,
    options: UserOptions & { recursive?: boolean | undefined } = {},
  ): Promise<void> {
    const { recursive, user } = options;
    await this.#client.call("chmodFile", { id: this.#id, path, mode, recursive, user }, options);
  }
}
