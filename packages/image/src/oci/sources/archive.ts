/** The members of a tar archive on disk, found without reading their content. */
import { open, stat, type FileHandle } from "node:fs/promises";
import { posix } from "node:path";
import type { FilePart } from "../file-part.ts";
import { DocumentFault, maxDocumentBytes } from "../manifest.ts";
import { readEntries, type EntryReader } from "../tar/entries.ts";
import { TarFault } from "../tar/header.ts";

const maxMembers = 100_000;
const maxLinks = 10;

type Member = FilePart | { link: string };

export class Archive {
  readonly #members: ReadonlyMap<string, Member>;

  private constructor(members: ReadonlyMap<string, Member>) {
    this.#members = members;
  }

  /** Throws DocumentFault if it is not an archive. */
  static async open(path: string): Promise<Archive> {
    const members = new Map<string, Member>();
    const handle = await open(path, "r");
    try {
      const reader = new FileReader(handle, (await stat(path)).size);
      for await (const { name, type, link, offset, size } of readEntries(reader)) {
        if (members.size >= maxMembers) throw new DocumentFault(`it has more than ${maxMembers} members`);
        const plain = plainName(name);
        if (type === "0") members.set(plain, { path, offset, size });
        // Older versions of Docker save a layer that two images share as a link.
        if (type === "1") members.set(plain, { link: plainName(link) });
        if (type === "2") members.set(plain, { link: posix.join(posix.dirname(plain), plainName(link)) });
      }
      if (reader.isTooShort) throw new TarFault("it ends too early");
    } catch (error) {
      if (!(error instanceof TarFault)) throw error;
      throw new DocumentFault(error.message, { cause: error });
    } finally {
      await handle.close();
    }
    return new Archive(members);
  }

  find(name: string): FilePart | undefined {
    let member = this.#members.get(plainName(name));
    for (let links = 0; member && "link" in member; links++) {
      if (links >= maxLinks) return undefined;
      member = this.#members.get(member.link);
    }
    return member;
  }
}

/** The bytes of a small file, or of a part of a file. */
export async function readDocument({ path, offset, size }: FilePart, what: string): Promise<Uint8Array> {
  if (size > maxDocumentBytes)
    throw new DocumentFault(`its ${what} is larger than ${maxDocumentBytes} bytes`);
  const handle = await open(path, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(size), 0, size, offset);
    if (bytesRead < size) throw new DocumentFault(`its ${what} ends too early`);
    return buffer;
  } finally {
    await handle.close();
  }
}

function plainName(name: string): string {
  return posix.normalize(name).replace(/^(\.?\/)+/, "");
}

/** Skips by moving its position. */
class FileReader implements EntryReader {
  readonly #handle: FileHandle;
  readonly #size: number;
  position = 0;

  constructor(handle: FileHandle, size: number) {
    this.#handle = handle;
    this.#size = size;
  }

  get isTooShort(): boolean {
    return this.position > this.#size;
  }

  async read(length: number): Promise<Buffer | undefined> {
    const { buffer, bytesRead } = await this.#handle.read(Buffer.alloc(length), 0, length, this.position);
    if (bytesRead === 0) return undefined;
    if (bytesRead < length) throw new TarFault("it ends too early");
    this.position += length;
    return buffer;
  }

  skip(length: number): Promise<void> {
    this.position += length;
    return Promise.resolve();
  }

  drain(): Promise<void> {
    return Promise.resolve();
  }
}
