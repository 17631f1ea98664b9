/**
 * Blobs that were made before, so that the same snapshot, or another one over the same base, is not compressed
 * again. `<dir>/<key>/` has `entry.json`, `map` and, if no earlier file has all of its pages, `pages`. An entry is
 * complete when it has its name. The least recently used ones are removed; those in use stay.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rename, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, readJson, removeTree } from "@forkd/base";
import { z } from "zod";
import { digestSchema } from "../format/descriptor.ts";

const draftPrefix = ".pack-";
const entryName = "entry.json";
const blobSchema = z.strictObject({ digest: digestSchema, size: z.int().min(0) });
const entrySchema = z.strictObject({
  version: z.literal(1),
  map: blobSchema,
  pages: blobSchema.optional(),
});

export type CachedBlobs = { dir: string } & Omit<z.output<typeof entrySchema>, "version">;

export class BlobCache {
  readonly #dir: string;
  readonly #maxBytes: number;
  /** key → how many use it */
  readonly #used = new Map<string, number>();

  #opened: Promise<void> | undefined;

  /** The directory is made when it is first used. One process uses it at a time. */
  constructor(dir: string, options: { maxBytes: number }) {
    this.#dir = dir;
    this.#maxBytes = options.maxBytes;
  }

  /** Removes what an earlier process did not complete. */
  #open(): Promise<void> {
    const open = async (): Promise<void> => {
      await mkdir(this.#dir, { recursive: true, mode: 0o700 });
      for (const name of await readdir(this.#dir)) {
        if (name.startsWith(draftPrefix)) await removeTree(join(this.#dir, name));
      }
    };
    this.#opened ??= open();
    return this.#opened;
  }

  /** Keeps the entry of a key, existing or not, until the function that is returned is called. */
  hold(key: string): () => void {
    this.#used.set(key, (this.#used.get(key) ?? 0) + 1);
    return () => {
      const left = (this.#used.get(key) ?? 1) - 1;
      if (left === 0) this.#used.delete(key);
      else this.#used.set(key, left);
    };
  }

  /** The caller holds the key. */
  async find(key: string): Promise<CachedBlobs | undefined> {
    const dir = join(this.#dir, key);
    const parsed = entrySchema.safeParse(await readJson(join(dir, entryName)).catch(() => undefined));
    if (!parsed.success) return undefined;
    const { map, pages } = parsed.data;
    const isWhole =
      (await hasSize(join(dir, "map"), map.size)) &&
      (pages === undefined || (await hasSize(join(dir, "pages"), pages.size)));
    if (!isWhole) return undefined;
    const now = new Date();
    await utimes(dir, now, now);
    return { dir, map, pages };
  }

  /** A directory for the blobs of one file. */
  async draft(): Promise<string> {
    await this.#open();
    const dir = join(this.#dir, `${draftPrefix}${randomBytes(8).toString("hex")}`);
    // Someone may have removed the cache, as is allowed with every cache.
    await mkdir(dir, { recursive: true, mode: 0o700 });
    return dir;
  }

  /** Gives a draft its key. If another one has it meanwhile, that one stays. The caller holds the key. */
  async add(key: string, draft: string, blobs: Omit<CachedBlobs, "dir">): Promise<CachedBlobs> {
    await writeFile(join(draft, entryName), JSON.stringify({ version: 1, ...blobs }), { mode: 0o600 });
    if (blobs.pages === undefined) await removeTree(join(draft, "pages"));
    const dir = join(this.#dir, key);
    const found = await this.find(key);
    if (found) {
      await removeTree(draft);
      return found;
    }
    await removeTree(dir);
    try {
      await rename(draft, dir);
    } catch (error) {
      const other = isErrno(error, "ENOTEMPTY", "EEXIST") ? await this.find(key) : undefined;
      if (!other) throw error;
      await removeTree(draft);
      return other;
    }
    return { dir, ...blobs };
  }

  async remove(key: string): Promise<void> {
    await removeTree(join(this.#dir, key));
  }

  /** Removes entries until the cache is within its limit. Returns the bytes that it removed. */
  async trim(maxBytes = this.#maxBytes): Promise<number> {
    const entries = await this.#entries();
    let total = entries.reduce((sum, { bytes }) => sum + bytes, 0);
    const before = total;
    for (const { key, bytes } of entries) {
      if (total <= maxBytes) break;
      if (this.#used.has(key)) continue;
      await this.remove(key);
      total -= bytes;
    }
    return before - total;
  }

  /** Bytes that trim(0) would remove. */
  async unusedBytes(): Promise<number> {
    const unused = (await this.#entries()).filter(({ key }) => !this.#used.has(key));
    return unused.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  async #entries(): Promise<{ key: string; bytes: number; usedAt: number }[]> {
    await this.#open();
    const found = [];
    const keys = await readdir(this.#dir).catch((error: unknown): string[] => {
      if (isErrno(error, "ENOENT")) return [];
      throw error;
    });
    for (const key of keys) {
      if (key.startsWith(draftPrefix)) continue;
      const dir = join(this.#dir, key);
      const { mtimeMs: usedAt } = await stat(dir);
      let bytes = 0;
      for (const name of await readdir(dir)) bytes += (await stat(join(dir, name))).size;
      found.push({ key, bytes, usedAt });
    }
    return found.sort((a, b) => a.usedAt - b.usedAt);
  }
}

async function hasSize(path: string, size: number): Promise<boolean> {
  try {
    return (await stat(path)).size === size;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}
