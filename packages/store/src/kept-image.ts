/**
 * The whole memory of a layered snapshot, kept beside its layer: `flat`, described by `flat.json`
 * (docs/spec/manifest.md). It shortens a long chain without changing a published snapshot: id, layer and parent
 * stay, and memory is built from the nearest image. The layers are complete without it, so an image that is
 * missing or damaged costs only time.
 */
import { link, rename } from "node:fs/promises";
import { join } from "node:path";
import {
  copySparse,
  fsyncPath,
  isErrno,
  readJson,
  removeTree,
  writeFileAtomic,
  type Logger,
} from "@forkd/base";
import { z } from "zod";
import { digestFile } from "./digest.ts";
import type { StoredSnapshot } from "./snapshot.ts";
import { stampOf, type VerifiedFiles } from "./stamp.ts";
import { hiddenName } from "./tombstone.ts";

export const imageName = "flat";
const version = 1;

const recordSchema = z.object({
  version: z.literal(version),
  /** id of the snapshot, because its tag can be given to another one */
  snapshot: z.string(),
  bytes: z.int(),
  digest: z.string(),
});
type Record = z.output<typeof recordSchema>;

export class KeptImages {
  readonly #verified: VerifiedFiles;
  readonly #log: Logger;

  constructor(verified: VerifiedFiles, log: Logger) {
    this.#verified = verified;
    this.#log = log;
  }

  path({ dir }: StoredSnapshot): string {
    return join(dir, imageName);
  }

  /** Whether an image was kept. It may be missing or damaged since. */
  async has(snapshot: StoredSnapshot): Promise<boolean> {
    return (await this.#record(snapshot)) !== undefined;
  }

  /** Path of the image if it is intact. Removes one that is damaged. With `always` it is read in any case. */
  async find(
    snapshot: StoredSnapshot,
    { always, signal }: { always?: boolean; signal?: AbortSignal | undefined } = {},
  ): Promise<string | undefined> {
    const record = await this.#record(snapshot);
    const path = this.path(snapshot);
    const stamp = record && (await stampOf(path));
    if (record === undefined || stamp === undefined) return undefined;
    if (always !== true && this.#verified.has(stamp, record.digest, path)) return path;
    const { bytes, digest } = await digestFile(path, signal);
    if (bytes === record.bytes && digest === record.digest) {
      this.#verified.add(stamp, digest, path);
      return path;
    }
    this.#verified.delete(stamp);
    this.#log.warn({ event: "image.damaged", tag: snapshot.tag, path });
    await removeTree(path);
    return undefined;
  }

  /** Keeps `image`, the whole memory of the snapshot, which nothing writes to. The record is written last. */
  async keep(snapshot: StoredSnapshot, image: string, signal?: AbortSignal): Promise<void> {
    const temporary = join(snapshot.dir, hiddenName(".flat-"));
    const path = this.path(snapshot);
    try {
      await link(image, temporary).catch(async (error: unknown) => {
        if (!isErrno(error, "EXDEV", "EPERM", "EMLINK")) throw error;
        await copySparse(image, temporary);
      });
      await fsyncPath(temporary);
      const stamp = await stampOf(temporary);
      const { bytes, digest } = await digestFile(temporary, signal);
      await rename(temporary, path);
      const record: Record = { version, snapshot: snapshot.id, bytes, digest };
      await writeFileAtomic(this.#recordPath(snapshot), `${JSON.stringify(record)}\n`);
      if (stamp !== undefined) this.#verified.add(stamp, digest, path);
    } catch (error) {
      if (!(await this.has(snapshot).catch(() => true))) await removeTree(path).catch(() => undefined);
      throw error;
    } finally {
      // If both names were links to one file, rename() has left this one.
      await removeTree(temporary);
    }
  }

  #recordPath({ dir }: StoredSnapshot): string {
    return join(dir, "flat.json");
  }

  async #record(snapshot: StoredSnapshot): Promise<Record | undefined> {
    const content = await readJson(this.#recordPath(snapshot)).catch(() => undefined);
    const record = recordSchema.safeParse(content).data;
    return record?.snapshot === snapshot.id ? record : undefined;
  }
}
