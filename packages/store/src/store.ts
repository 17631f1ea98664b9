/** Tags → snapshots on disk: `<root>/<tag>/` with a manifest and the files it names. One process owns a root. */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { AppError, tagPattern } from "@forkd/contract";
import { isErrno, readJson, removeTree } from "@forkd/base";
import { digestFile } from "./digest.ts";
import { Draft, draftPrefix, trashPrefix, type SealedDraft } from "./draft.ts";
import { fileNames, manifestName, manifestSchema, type FileRole, type Manifest } from "./manifest.ts";
import { stampOf } from "./stamp.ts";

/** `stamp` changes when another snapshot takes the tag. */
export type StoredSnapshot = SealedDraft;
export type BrokenSnapshot = { tag: string; dir: string; problem: string };

export function snapshotFile(snapshot: StoredSnapshot, role: FileRole): string {
  return join(snapshot.dir, fileNames[role]);
}

export class Store {
  readonly root: string;
  /** files whose digest was checked, by what stat() says of them */
  #verified = new Map<string, string>();
  #manifests = new Map<string, { stamp: string; manifest: Manifest }>();

  private constructor(root: string) {
    this.root = root;
  }

  /** Opens the root and removes what an earlier owner left half done. */
  static async open(root: string): Promise<Store> {
    await mkdir(root, { recursive: true, mode: 0o700 });
    for (const name of await readdir(root)) {
      if (name.startsWith(draftPrefix) || name.startsWith(trashPrefix)) await removeTree(join(root, name));
    }
    return new Store(root);
  }

  async list(): Promise<(StoredSnapshot | BrokenSnapshot)[]> {
    const names = (await readdir(this.root)).filter((name) => tagPattern.test(name)).sort();
    return Promise.all(
      names.map(async (tag) => {
        try {
          return await this.get(tag);
        } catch (error) {
          return {
            tag,
            dir: join(this.root, tag),
            problem: error instanceof Error ? error.message : String(error),
          };
        }
      }),
    );
  }

  async get(tag: string): Promise<StoredSnapshot> {
    const dir = join(this.root, tag);
    const path = join(dir, manifestName);
    if (!tagPattern.test(tag)) throw notFound(tag);
    const stamp = await stampOf(path);
    const known = this.#manifests.get(tag);
    if (stamp !== undefined && known?.stamp === stamp) return { tag, dir, manifest: known.manifest, stamp };
    if (stamp === undefined) {
      if ((await stampOf(dir)) === undefined) throw notFound(tag);
      throw corrupt(tag, "its manifest is missing");
    }
    let manifest: Manifest;
    try {
      manifest = manifestSchema.parse(await readJson(path));
    } catch (error) {
      const why = error instanceof z.ZodError ? z.prettifyError(error) : String(error);
      throw corrupt(tag, `its manifest cannot be read: ${why}`, error);
    }
    this.#manifests.set(tag, { stamp, manifest });
    return { tag, dir, manifest, stamp };
  }

  /** Whether the files at that place are still those of the snapshot. */
  async isCurrent(snapshot: StoredSnapshot): Promise<boolean> {
    return (await stampOf(join(snapshot.dir, manifestName))) === snapshot.stamp;
  }

  draft(tag: string, options: { replace: boolean }): Promise<Draft> {
    return Draft.open(this.root, tag, options);
  }

  /**
   * Compares every file with its digest. A file that was checked before and has not been touched since (same inode,
   * size and time of change) is not read again unless `always` is set.
   */
  async verify(snapshot: StoredSnapshot, options: { always?: boolean } = {}): Promise<void> {
    const roles = Object.keys(fileNames) as FileRole[];
    await Promise.all(roles.map((role) => this.#verifyFile(snapshot, role, options.always ?? false)));
  }

  async #verifyFile(snapshot: StoredSnapshot, role: FileRole, always: boolean): Promise<void> {
    const path = snapshotFile(snapshot, role);
    const stamp = await stampOf(path);
    if (stamp === undefined) throw corrupt(snapshot.tag, `file "${fileNames[role]}" is missing`);
    const expected = snapshot.manifest.files[role];
    const key = `${stamp}:${expected.digest}`;
    if (!always && this.#verified.get(path) === key) return;
    const actual = await digestFile(path);
    if (actual.bytes !== expected.bytes || actual.digest !== expected.digest) {
      this.#verified.delete(path);
      throw corrupt(snapshot.tag, `file "${fileNames[role]}" differs from its digest`);
    }
    this.#verified.set(path, key);
  }

  /** Gone at once by rename; the bytes follow. */
  async remove(tag: string): Promise<void> {
    if (!tagPattern.test(tag)) throw notFound(tag);
    const trash = join(this.root, `${trashPrefix}${randomBytes(8).toString("hex")}`);
    try {
      await rename(join(this.root, tag), trash);
    } catch (error) {
      if (isErrno(error, "ENOENT")) throw notFound(tag);
      throw error;
    }
    this.#manifests.delete(tag);
    await removeTree(trash);
  }
}

function notFound(tag: string): AppError {
  return new AppError(
    "snapshot_not_found",
    `Cannot find snapshot "${tag}". forkd images lists what there is`,
    {
      details: { tag },
    },
  );
}

function corrupt(tag: string, problem: string, cause?: unknown): AppError {
  return new AppError(
    "snapshot_corrupt",
    `Cannot use snapshot "${tag}": ${problem}. Build it again with --force`,
    {
      details: { tag, problem },
      cause,
    },
  );
}
