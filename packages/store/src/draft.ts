/**
 * A snapshot being written: a hidden directory beside the finished ones. `seal()` makes every file durable
 * and writes the manifest last; `publish()` renames the directory. Disposing an unpublished draft removes it.
 */
import { link, mkdir, readdir, rename, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { copySparse, fsyncPath, isErrno, removeTree, writeFileAtomic } from "@forkd/base";
import { digestFile, type FileDigest } from "./digest.ts";
import { openLayer } from "./layer.ts";
import {
  attachmentRoles,
  diskName,
  fileNames,
  manifestName,
  manifestSchema,
  manifestVersion,
  memoryBytes,
  type FileRole,
  type Manifest,
  type ManifestFacts,
} from "./manifest.ts";
import { encodeManifest } from "./manifest-text.ts";
import { manifestId, parseManifest, snapshotFile, type StoredSnapshot } from "./snapshot.ts";
import { snapshotFiles } from "./snapshot-files.ts";
import { corrupt, taken } from "./snapshot-errors.ts";
import { stampOf, VerifiedFiles } from "./stamp.ts";
import {
  draftPrefix,
  draftRecordName,
  hiddenName,
  isTombstone,
  replacedPrefix,
  writeDraftRecord,
} from "./tombstone.ts";
import { verifyChain } from "./verify.ts";

export type DraftOptions = {
  /** replace an existing snapshot with that tag */
  replace?: boolean;
  /** if the daemon exits before this draft is published, the tag is listed as failed */
  announce?: { branchedFrom?: string };
  /** where seal() records the files that it has read */
  verified?: VerifiedFiles;
};

type SealOptions = {
  signal?: AbortSignal | undefined;
  /** digests of files that another snapshot has too and seal() need not read, by role or path in the draft */
  known?: ReadonlyMap<string, FileDigest>;
};

export class Draft implements AsyncDisposable {
  readonly dir: string;
  readonly tag: string;
  readonly #root: string;
  readonly #target: string;
  readonly #options: DraftOptions;
  readonly #verified: VerifiedFiles;
  /** paths that are hard links; those with a known digest are durable already */
  readonly #linked = new Set<string>();
  #sealed: StoredSnapshot | undefined;

  private constructor(root: string, name: string, tag: string, options: DraftOptions) {
    this.#root = root;
    this.#target = join(root, name);
    this.dir = join(root, hiddenName(draftPrefix));
    this.tag = tag;
    this.#options = options;
    this.#verified = options.verified ?? new VerifiedFiles();
  }

  /** Opens a draft for the snapshot `<root>/<tag>`. */
  static open(root: string, tag: string, options: DraftOptions = {}): Promise<Draft> {
    return Draft.openIn(root, tag, tag, options);
  }

  /** Opens a draft for `<dir>/<name>` outside the store; errors name it `tag`. `dir` must exist. */
  static async openIn(dir: string, name: string, tag: string, options: DraftOptions = {}): Promise<Draft> {
    const draft = new Draft(dir, name, tag, options);
    if (options.replace !== true) await draft.#refuseExisting();
    await mkdir(draft.dir, { mode: 0o700 });
    if (options.announce === undefined) return draft;
    try {
      const { branchedFrom } = options.announce;
      await writeDraftRecord(draft.dir, {
        tag,
        ...(branchedFrom !== undefined && { branched_from: branchedFrom }),
        created_at_unix: Math.floor(Date.now() / 1000),
      });
    } catch (error) {
      await removeTree(draft.dir);
      throw error;
    }
    return draft;
  }

  path(role: FileRole): string {
    return join(this.dir, fileNames[role]);
  }

  /** Disk layers are numbered from the bottom, without gaps. */
  diskPath(index: number): string {
    return join(this.dir, diskName(index));
  }

  /** Adds a file that nothing writes to any more, as a hard link or, where that is not possible, a copy. */
  async share(target: string, source: string): Promise<void> {
    if (!(await this.link(target, source))) await copySparse(source, target);
  }

  /** Takes over what describes the snapshot that this one is made from. Returns the digests for seal(). */
  async inheritAttachments(from: StoredSnapshot): Promise<Map<string, FileDigest>> {
    const known = new Map<string, FileDigest>();
    for (const role of attachmentRoles) {
      const digest = from.manifest.files[role];
      if (digest === undefined) continue;
      await this.share(this.path(role), snapshotFile(from, role));
      known.set(role, digest);
    }
    return known;
  }

  /** Makes a hard link. Returns false where that is not possible. */
  async link(target: string, source: string): Promise<boolean> {
    try {
      await link(source, target);
      this.#linked.add(target);
      return true;
    } catch (error) {
      if (!isErrno(error, "EXDEV", "EPERM", "EMLINK")) throw error;
      return false;
    }
  }

  /** Makes the files durable and writes the manifest: the directory is a complete snapshot without a tag. */
  async seal(facts: ManifestFacts, options: SealOptions = {}): Promise<StoredSnapshot> {
    const files = await this.#digests(facts, options);
    const manifest = manifestSchema.parse({ version: manifestVersion, ...facts, files });
    const text = encodeManifest(manifest);
    const path = join(this.dir, manifestName);
    await writeFileAtomic(path, text);
    const stamp = (await stampOf(path)) ?? "";
    this.#sealed = { tag: this.tag, dir: this.dir, id: manifestId(text), manifest, stamp };
    return this.#sealed;
  }

  /**
   * Like seal(), with a manifest that was made elsewhere and stays as it is, byte by byte. Every file must
   * match its digest.
   */
  async adopt(text: Uint8Array, options: { signal?: AbortSignal | undefined } = {}): Promise<StoredSnapshot> {
    const manifest = parseManifest(this.tag, text);
    const snapshot = { tag: this.tag, dir: this.dir, id: manifestId(text), manifest, stamp: "" };
    const paths = snapshotFiles(manifest).map(({ name }) => join(this.dir, name));
    await Promise.all([verifyChain([snapshot], this.#verified, options), syncInTurn(paths)]);
    const { layer } = manifest.files;
    const found = layer && (await openLayer(this.path("layer"), layer.digest));
    if (found?.bytes !== layer?.bytes || found?.pages !== layer?.pages)
      throw corrupt(snapshot, "its layer has another length than its manifest says");
    const path = join(this.dir, manifestName);
    await writeFileAtomic(path, text);
    this.#sealed = { ...snapshot, stamp: (await stampOf(path)) ?? "" };
    return this.#sealed;
  }

  async #digests(facts: ManifestFacts, options: SealOptions): Promise<Manifest["files"]> {
    const names = await readdir(this.dir);
    const diskCount = names.filter((name) => /^disk-\d+\.qcow2$/.test(name)).length;
    const file = (role: FileRole) => this.#digest(this.path(role), role, options);
    // In parallel, because syncing several files at once costs little more than syncing one.
    const [memory, layer, sbom, recipe, devices, rootfs, ...disks] = await Promise.all([
      names.includes(fileNames.memory) ? file("memory") : undefined,
      names.includes(fileNames.layer) ? this.#layer(facts) : undefined,
      names.includes(fileNames.sbom) ? file("sbom") : undefined,
      names.includes(fileNames.recipe) ? file("recipe") : undefined,
      file("devices"),
      file("rootfs"),
      ...Array.from({ length: diskCount }, (_, index) =>
        this.#digest(this.diskPath(index), undefined, options),
      ),
    ]);
    const attached = { ...(sbom && { sbom }), ...(recipe && { recipe }) };
    return { ...(memory && { memory }), ...(layer && { layer }), devices, disks, rootfs, ...attached };
  }

  async #digest(path: string, role: FileRole | undefined, options: SealOptions): Promise<FileDigest> {
    options.signal?.throwIfAborted();
    const known = options.known?.get(path) ?? (role === undefined ? undefined : options.known?.get(role));
    // A linked file that no snapshot has yet, such as a disk layer frozen just now, may not be on disk.
    if (known === undefined || !this.#linked.has(path)) await fsyncPath(path);
    if (known !== undefined) {
      const { size } = await stat(path);
      if (size !== known.bytes)
        throw new Error(`Cannot seal ${path}: it has ${size} bytes, not ${known.bytes}`);
      return { bytes: known.bytes, digest: known.digest };
    }
    const stamp = await stampOf(path);
    const found = await digestFile(path, options.signal);
    if (stamp !== undefined) this.#verified.add(stamp, found.digest);
    return found;
  }

  /** Does not read the pages: finishLayer() has. */
  async #layer(facts: ManifestFacts): Promise<Manifest["files"]["layer"]> {
    const path = this.path("layer");
    const layer = await openLayer(path);
    if (layer.memoryBytes !== memoryBytes(facts)) {
      throw new Error(`Cannot seal ${path}: it is for a memory of ${layer.memoryBytes} bytes`);
    }
    await fsyncPath(path);
    const stamp = await stampOf(path);
    if (stamp !== undefined) this.#verified.add(stamp, layer.digest);
    return { bytes: layer.bytes, digest: layer.digest, pages: layer.pages };
  }

  /** Gives the sealed directory its name. Removes a replaced snapshot only once the new one is in place. */
  async publish(): Promise<StoredSnapshot> {
    if (this.#sealed === undefined) throw new Error(`Cannot publish "${this.tag}": it is not sealed`);
    const replaced = this.#options.replace === true ? await this.#moveAway() : await this.#moveTombstone();
    try {
      await rename(this.dir, this.#target);
    } catch (error) {
      const isTaken = isErrno(error, "ENOTEMPTY", "EEXIST");
      if (replaced !== undefined) await (isTaken ? removeTree(replaced) : rename(replaced, this.#target));
      throw isTaken ? taken(this.tag) : error;
    }
    try {
      await fsyncPath(this.#root);
    } catch (error) {
      // The rename may not be durable, so undo it: this is a draft again, and the replaced snapshot is back.
      await rename(this.#target, this.dir);
      if (replaced !== undefined) await rename(replaced, this.#target);
      throw error;
    }
    // The snapshot is published, so a failed removal must not fail it: the next open of the root removes the
    // replaced snapshot, and a leftover draft record has no effect.
    const rest = [...(replaced === undefined ? [] : [replaced]), join(this.#target, draftRecordName)];
    await Promise.allSettled(rest.map(removeTree));
    return { ...this.#sealed, dir: this.#target };
  }

  async commit(facts: ManifestFacts, options: SealOptions = {}): Promise<StoredSnapshot> {
    await this.seal(facts, options);
    return this.publish();
  }

  async #moveAway(): Promise<string | undefined> {
    const replaced = join(this.#root, `${hiddenName(replacedPrefix)}-${basename(this.#target)}`);
    try {
      await rename(this.#target, replaced);
      return replaced;
    } catch (error) {
      if (isErrno(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Moves only a tombstone out of the way. Anything else stays and makes the rename fail. */
  async #moveTombstone(): Promise<string | undefined> {
    if (!(await isTombstone(this.#target))) return undefined;
    const replaced = await this.#moveAway();
    if (replaced === undefined || (await isTombstone(replaced))) return replaced;
    // Another draft was published between the check and the move.
    await rename(replaced, this.#target);
    return undefined;
  }

  async #refuseExisting(): Promise<void> {
    if ((await stampOf(this.#target)) === undefined || (await isTombstone(this.#target))) return;
    throw taken(this.tag);
  }

  /** Does nothing after publish(), which has renamed the directory. */
  async [Symbol.asyncDispose](): Promise<void> {
    await removeTree(this.dir);
  }
}

/** One at a time, so that threads are left for other work. */
async function syncInTurn(paths: readonly string[]): Promise<void> {
  for (const path of paths) await fsyncPath(path);
}
