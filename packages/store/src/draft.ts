/**
 * A snapshot being written: a hidden directory beside the finished ones. `commit()` makes every file durable, writes the
 * manifest last and renames the directory to its tag. A draft that is disposed without commit leaves nothing.
 */
import { randomBytes } from "node:crypto";
import { link, mkdir, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { fsyncPath, isErrno, removeTree, runCommand, writeFileAtomic } from "@forkd/base";
import { digestFile } from "./digest.ts";
import {
  fileNames,
  manifestName,
  manifestVersion,
  type FileRole,
  type Manifest,
  type ManifestFacts,
} from "./manifest.ts";
import { stampOf } from "./stamp.ts";

export const draftPrefix = ".draft-";
export const trashPrefix = ".trash-";

/** A whole snapshot, as the store sees it. */
export type SealedDraft = { tag: string; dir: string; manifest: Manifest; stamp: string };

export class Draft implements AsyncDisposable {
  readonly dir: string;
  readonly tag: string;
  readonly #root: string;
  readonly #replace: boolean;

  private constructor(root: string, dir: string, tag: string, replace: boolean) {
    this.#root = root;
    this.dir = dir;
    this.tag = tag;
    this.#replace = replace;
  }

  static async open(root: string, tag: string, options: { replace: boolean }): Promise<Draft> {
    if (!options.replace) await refuseExisting(root, tag);
    const dir = join(root, `${draftPrefix}${randomBytes(8).toString("hex")}`);
    await mkdir(dir, { mode: 0o700 });
    return new Draft(root, dir, tag, options.replace);
  }

  path(role: FileRole): string {
    return join(this.dir, fileNames[role]);
  }

  /** Takes a file that other snapshots share: a hard link, or a copy where that is not possible. */
  async share(role: FileRole, source: string): Promise<void> {
    try {
      await link(source, this.path(role));
    } catch (error) {
      if (!isErrno(error, "EXDEV", "EPERM", "EMLINK")) throw error;
      await runCommand("cp", ["--sparse=always", "--reflink=auto", source, this.path(role)]);
    }
  }

  /** Makes the files durable and writes the manifest: the directory is a whole snapshot, under no tag yet. */
  async seal(facts: ManifestFacts, signal?: AbortSignal): Promise<SealedDraft> {
    const roles = Object.keys(fileNames) as FileRole[];
    const digests = await Promise.all(
      roles.map(async (role) => {
        await fsyncPath(this.path(role));
        return [role, await digestFile(this.path(role), signal)] as const;
      }),
    );
    const files = Object.fromEntries(digests) as Manifest["files"];
    const manifest: Manifest = { version: manifestVersion, ...facts, files };
    const path = join(this.dir, manifestName);
    await writeFileAtomic(path, `${JSON.stringify(manifest, null, 2)}\n`);
    return { tag: this.tag, dir: this.dir, manifest, stamp: (await stampOf(path)) ?? "" };
  }

  /** Gives the sealed directory its tag. A snapshot that it replaces is gone only when the new one stands. */
  async publish(): Promise<void> {
    const target = join(this.#root, this.tag);
    const trash = this.#replace ? await this.#moveAway(target) : undefined;
    try {
      await rename(this.dir, target);
    } catch (error) {
      if (trash !== undefined) await rename(trash, target);
      if (isErrno(error, "ENOTEMPTY", "EEXIST")) throw taken(this.tag);
      throw error;
    }
    await fsyncPath(this.#root);
    if (trash !== undefined) await removeTree(trash);
  }

  async commit(facts: ManifestFacts, signal?: AbortSignal): Promise<Manifest> {
    const { manifest } = await this.seal(facts, signal);
    await this.publish();
    return manifest;
  }

  async #moveAway(target: string): Promise<string | undefined> {
    const trash = join(this.#root, `${trashPrefix}${randomBytes(8).toString("hex")}`);
    try {
      await rename(target, trash);
      return trash;
    } catch (error) {
      if (isErrno(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** After a commit the directory has another name and nothing is left to remove. */
  async [Symbol.asyncDispose](): Promise<void> {
    await removeTree(this.dir);
  }
}

async function refuseExisting(root: string, tag: string): Promise<void> {
  try {
    await stat(join(root, tag));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return;
    throw error;
  }
  throw taken(tag);
}

function taken(tag: string): AppError {
  return new AppError(
    "snapshot_exists",
    `Cannot make snapshot "${tag}": the tag is taken. Remove it (forkd rmi ${tag}) or use --force`,
    { details: { tag } },
  );
}
