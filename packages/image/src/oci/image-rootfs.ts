/** Root file systems that are a container image and nothing else. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { ensureEntry } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { builderVersion, digestOf } from "../files/digest.ts";
import { removeAsRoot } from "../namespace.ts";
import { makeImage } from "../rootfs/ext4.ts";
import { imageInfo, rootfsInfoSchema, toRootfs, type Rootfs } from "../rootfs/rootfs.ts";
import { openImage } from "./base-image.ts";

const mib = 2 ** 20;
const smallestMib = 2048;
/** Room for what the guest writes. */
const roomMib = 1024;
/** Bytes of a disk for which mke2fs makes an inode. */
const bytesPerInode = 16_384;

/** `diskMib` absent: as large as the files need, with room to write. */
export async function ensureImageRootfs(
  imageDir: string,
  image: string,
  options: { diskMib?: number | undefined; isFresh?: boolean | undefined },
  context: BuildContext,
): Promise<Rootfs> {
  await using opened = await openImage({ imageDir, image }, context);
  const digest = digestOf({
    builderVersion,
    kind: "image",
    content: opened.contentDigest,
    size: options.diskMib ?? "as needed",
  });
  const entry = await ensureEntry({
    parent: join(imageDir, "rootfs"),
    digest,
    info: rootfsInfoSchema,
    signal: context.signal,
    lease: context.lease,
    isFresh: options.isFresh,
    build: async (directory) => {
      const work = join(directory, "work");
      await mkdir(work);
      const { tree, bytes, entries } = await opened.unpack(work);
      const diskMib = options.diskMib ?? sizeFor(bytes, entries);
      const path = join(directory, "rootfs.ext4");
      context.onProgress?.("image", `Writing an ext4 image of ${diskMib} MiB`);
      // Programs compare the times of their files, Python those of its compiled modules.
      await makeImage({ tree, image: path, diskMib, digest, clamp: false, signal: context.signal });
      await removeAsRoot(work);
      return await imageInfo(path, { digest, diskMib, source: image });
    },
  });
  return { ...toRootfs(entry), image: opened.base };
}

function sizeFor(bytes: number, entries: number): number {
  const content = Math.ceil((bytes * 1.1 + entries * 4096) / mib);
  const inodes = Math.ceil((entries * 1.5 * bytesPerInode) / mib);
  return Math.max(smallestMib, content + roomMib, inodes);
}
