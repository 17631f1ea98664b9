/**
 * One synthetic address from 198.18.0.0/15 for each name, so that the name of every dial is known, whatever protocol
 * follows. A guest keeps addresses in its caches, and its forks inherit them: the table is kept per installation, and
 * an address follows from its name unless two names collide.
 */
import { createHash } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { readJson, writeFileAtomic, type Logger } from "@forkd/base";
import { errorMessage } from "@forkd/contract";
import { z } from "zod";
import { formatAddress, parseAddress } from "../policy/address.ts";
import { isSynthetic } from "../policy/address-kind.ts";
import { normalName } from "../policy/host.ts";

const firstAddress = 0xc6120000; // 198.18.0.0
const addressCount = 1 << 17;
/** At most half of the addresses, so that a free one is near. */
const defaultMaxNames = addressCount / 2;
const writeDelayMs = 1000;

const fileSchema = z.object({ version: z.literal(1), names: z.record(z.string(), z.string()) });

type NameTableOptions = {
  /** where the table is kept; undefined: only in memory */
  readonly file?: string | undefined;
  readonly log: Logger;
  readonly maxNames?: number | undefined;
};

export class NameTable implements AsyncDisposable {
  /** from the least recently used name on */
  readonly #addresses = new Map<string, number>();
  readonly #names = new Map<number, string>();
  readonly #options: NameTableOptions;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  private constructor(options: NameTableOptions) {
    this.#options = options;
  }

  /** A file that cannot be read or used is replaced: guests then resolve their names again. */
  static async open(options: NameTableOptions): Promise<NameTable> {
    const table = new NameTable(options);
    const { file, log } = options;
    if (file === undefined) return table;
    try {
      const text = await readJson(file);
      if (text !== undefined) table.#load(fileSchema.parse(text).names);
    } catch (error) {
      log.warn({ event: "egress.names_unreadable", file, reason: errorMessage(error) });
    }
    return table;
  }

  get size(): number {
    return this.#addresses.size;
  }

  /** The address of a name, which gets one if it has none. */
  addressOf(name: string): string {
    const index = this.#addresses.get(name) ?? this.#add(name);
    this.#touch(name, index);
    return textOf(index);
  }

  /** The name of an address, if it is one of this table. */
  nameOf(address: string): string | undefined {
    const name = this.#names.get(indexOf(address) ?? -1);
    const index = name === undefined ? undefined : this.#addresses.get(name);
    if (name !== undefined && index !== undefined) this.#touch(name, index);
    return name;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#timer) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      this.#write();
    }
    await this.#writing;
  }

  #load(names: Record<string, string>): void {
    for (const [name, address] of Object.entries(names)) {
      const index = indexOf(address);
      if (index === undefined || this.#names.has(index) || normalName(name) !== name) continue;
      this.#set(name, index);
    }
  }

  #add(name: string): number {
    let index = createHash("sha256").update(name).digest().readUInt32BE(0) % addressCount;
    // The first and the last block look like network and broadcast addresses to some programs.
    while (this.#names.has(index) || (index & 0xff) === 0 || (index & 0xff) === 0xff)
      index = (index + 1) % addressCount;
    this.#set(name, index);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#write();
    }, writeDelayMs);
    return index;
  }

  #set(name: string, index: number): void {
    this.#addresses.set(name, index);
    this.#names.set(index, name);
    if (this.#addresses.size <= (this.#options.maxNames ?? defaultMaxNames)) return;
    for (const [oldest, its] of this.#addresses) {
      this.#addresses.delete(oldest);
      this.#names.delete(its);
      return;
    }
  }

  #touch(name: string, index: number): void {
    this.#addresses.delete(name);
    this.#addresses.set(name, index);
  }

  /** Writes follow each other, so that the last one has the last content. */
  #write(): void {
    const { file, log } = this.#options;
    if (file === undefined) return;
    this.#writing = this.#writing.then(async () => {
      try {
        const names = Object.fromEntries([...this.#addresses].map(([name, index]) => [name, textOf(index)]));
        await mkdir(dirname(file), { recursive: true, mode: 0o700 });
        await writeFileAtomic(file, `${JSON.stringify({ version: 1, names })}\n`);
      } catch (error) {
        log.warn({ event: "egress.names_unwritable", file, reason: errorMessage(error) });
      }
    });
  }
}

function textOf(index: number): string {
  return formatAddress({ family: 4, value: firstAddress + index });
}

function indexOf(text: string): number | undefined {
  const address = isSynthetic(text) ? parseAddress(text) : undefined;
  return address?.family === 4 ? address.value - firstAddress : undefined;
}
