/** Finds a file by its digest among those of the snapshots of a store. */
import { join } from "node:path";
import type { StoredSnapshot } from "./snapshot.ts";
import { snapshotFiles, type SnapshotFile } from "./snapshot-files.ts";
import type { VerifiedFiles } from "./stamp.ts";
import { isIntact } from "./verify.ts";

type Wanted = Omit<SnapshotFile, "name">;

export class LocalFiles {
  readonly #paths = new Map<string, string[]>();
  readonly #verified: VerifiedFiles;

  constructor(snapshots: readonly StoredSnapshot[], verified: VerifiedFiles) {
    this.#verified = verified;
    for (const { dir, manifest } of snapshots) {
      for (const file of snapshotFiles(manifest)) {
        const key = keyOf(file);
        this.#paths.set(key, [...(this.#paths.get(key) ?? []), join(dir, file.name)]);
      }
    }
  }

  /** Path of a file whose content was compared with the digest; undefined if no snapshot has one. */
  async find(
    wanted: Wanted,
    options: { signal?: AbortSignal | undefined } = {},
  ): Promise<string | undefined> {
    for (const path of this.#paths.get(keyOf(wanted)) ?? []) {
      if (await isIntact(path, wanted, this.#verified, options)) return path;
    }
    return undefined;
  }
}

function keyOf({ kind, bytes, digest }: Wanted): string {
  return `${kind}:${bytes}:${digest}`;
}
