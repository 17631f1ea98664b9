/** Root file systems that a user provides as an ext4 image, a tar archive or a directory. */
import { access, mkdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { ensureEntry, requireSpace } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { builderVersion, digestOf, sha256File } from "../files/digest.ts";
import { makeImage } from "./ext4.ts";
import { identify, kindNames, readExt4SizeBytes, type FileKind } from "../files/file-kind.ts";
import { removeAsRoot, runAsRoot } from "../namespace.ts";
import { imageInfo, rootfsInfoSchema, toRootfs, type Rootfs } from "./rootfs.ts";
import { ToolFailure } from "../tool.ts";
import { digestTree } from "../files/tree-digest.ts";
import { changed, readHead, requireUnchanged, unusable, type FileState } from "../files/user-file.ts";
import { copyImage } from "./user-image.ts";

const mib = 2 ** 20;
const defaultDiskMib = 2048;

/** Writes `rootfs.ext4` to `directory` and returns its size. */
type Fill = (directory: string) => Promise<{ diskMib: number }>;

/**
 * Copies the user's root file system to the cache; the original is never changed. `diskMib` is the size of a
 * disk made from an archive or a directory, and the size to which a smaller image grows.
 */
export async function importRootfs(
  imageDir: string,
  path: string,
  options: { diskMib?: number | undefined } = {},
  context: BuildContext = {},
): Promise<Rootfs> {
  const source = resolve(path);
  const { digest, fill } = await examine(source, options.diskMib, context);
  const entry = await ensureEntry({
    parent: join(imageDir, "rootfs"),
    digest,
    info: rootfsInfoSchema,
    signal: context.signal,
    lease: context.lease,
    build: async (directory) => {
      const { diskMib } = await fill(directory);
      return await imageInfo(join(directory, "rootfs.ext4"), { digest, diskMib, source });
    },
  });
  return toRootfs(entry);
}

async function examine(
  source: string,
  diskMib: number | undefined,
  context: BuildContext,
): Promise<{ digest: string; fill: Fill }> {
  const info = await stat(source).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "EACCES")) throw error;
    throw new AppError("invalid_image", `Cannot read the root file system "${source}": no such file`, {
      cause: error,
    });
  });
  context.onProgress?.("read", `Reading ${source}`);
  if (info.isDirectory()) {
    await refuseImage(source, source);
    const tree = await digestTree(source, context.signal);
    const size = diskMib ?? defaultDiskMib;
    const digest = digestOf({ builderVersion, kind: "directory", content: tree.digest, size });
    return { digest, fill: (directory) => fromDirectory(directory, { source, size, digest, tree, context }) };
  }
  if (!info.isFile()) throw unusable(source, "it is neither a file nor a directory");
  const head = await readHead(source);
  const kind = identify(head);
  const content = await sha256File(source, context.signal);
  if (kind === "ext4") {
    const size = Math.max(Math.ceil(info.size / mib), diskMib ?? 0);
    if (readExt4SizeBytes(head) > info.size) throw unusable(source, "it is a truncated ext4 image");
    const digest = digestOf({ builderVersion, kind, content, size });
    return { digest, fill: (directory) => copyImage(directory, { source, size, info, context }) };
  }
  if (isArchive(kind)) {
    const size = diskMib ?? defaultDiskMib;
    const digest = digestOf({ builderVersion, kind: "tar", content, size });
    return { digest, fill: (directory) => fromArchive(directory, { source, size, digest, info, context }) };
  }
  throw unusable(
    source,
    `it looks like ${kindNames[kind]}, not like an ext4 image or a tar archive (also .gz, .xz, .zst)`,
  );
}

type FileInput = { source: string; size: number; digest: string; info: FileState; context: BuildContext };

async function fromArchive(
  directory: string,
  { source, size, digest, info, context }: FileInput,
): Promise<{ diskMib: number }> {
  const { signal } = context;
  await requireSpace(directory, 2 * info.size);
  const tree = join(directory, "tree");
  await mkdir(tree, { mode: 0o755 });
  context.onProgress?.("unpack", `Unpacking ${source}`);
  // Device nodes need a privilege that a user namespace lacks, and the guest mounts its own /dev.
  const filter = ["--anchored", "--exclude=dev/*", "--exclude=./dev/*"];
  const owners = ["--numeric-owner", "--same-owner", "--same-permissions", "--xattrs", "--xattrs-include=*"];
  try {
    await runAsRoot("tar", ["-x", ...filter, ...owners, "-f", source, "-C", tree], { signal });
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error;
    const why = `it cannot be unpacked: ${error.output.trim().split("\n")[0] ?? ""}`;
    throw unusable(source, why, error);
  }
  await requireUnchanged(source, info);
  await refuseImage(tree, source);
  context.onProgress?.("image", `Writing an ext4 image of ${size} MiB`);
  await makeImage({
    tree,
    image: join(directory, "rootfs.ext4"),
    diskMib: size,
    digest,
    clamp: true,
    signal,
  });
  await removeAsRoot(tree);
  return { diskMib: size };
}

async function fromDirectory(
  directory: string,
  input: {
    source: string;
    size: number;
    digest: string;
    tree: { digest: string; sizeBytes: number };
    context: BuildContext;
  },
): Promise<{ diskMib: number }> {
  const { source, size, digest, tree, context } = input;
  await requireSpace(directory, tree.sizeBytes);
  context.onProgress?.("image", `Writing an ext4 image of ${size} MiB`);
  const image = join(directory, "rootfs.ext4");
  await makeImage({ tree: source, image, diskMib: size, digest, clamp: false, signal: context.signal });
  const after = await digestTree(source, context.signal);
  if (after.digest !== tree.digest) throw changed(source);
  return { diskMib: size };
}

function isArchive(kind: FileKind): boolean {
  return kind === "tar" || kind === "gzip" || kind === "xz" || kind === "zstd";
}

/** Its layers are archives in the archive. */
async function refuseImage(directory: string, source: string): Promise<void> {
  if (await exists(join(directory, "usr"))) return;
  const isSaved = await exists(join(directory, "manifest.json"));
  if (!isSaved && !(await exists(join(directory, "oci-layout")))) return;
  const kind = isSaved ? "docker-archive" : "oci";
  throw new AppError("invalid_image", `Cannot use "${source}": it looks like a container image with layers`, {
    remedy: advice(`Give it as the image "${kind}:${source}".`),
  });
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
