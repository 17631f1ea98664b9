/**
 * Disk layers → one. The bottom layer is copied and each upper one is committed into the copy, with the root file
 * system below: so a cluster that an upper layer zeroed stays zero and goes on hiding what is below it.
 */
import { rm } from "node:fs/promises";
import { AppError } from "@forkd/contract";
import { copySparse, runCommand } from "@forkd/base";

type Node = { driver: string; file: { driver: string; filename: string }; backing?: Node };

/** How QEMU is told of disk layers (bottom to top, none names its backing file) over a raw image. */
export function diskChain(layers: readonly string[], rootfs: string): string {
  const file = (filename: string) => ({ driver: "file", filename });
  const node = layers.reduce<Node>((backing, path) => ({ driver: "qcow2", file: file(path), backing }), {
    driver: "raw",
    file: file(rootfs),
  });
  return `json:${JSON.stringify(node)}`;
}

/** `layers` (bottom to top) are only read. `outPath` must not exist; after a failure it may. */
export async function mergeDisks(
  layers: readonly string[],
  rootfs: string,
  outPath: string,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  const [bottom, ...uppers] = layers;
  if (bottom === undefined) throw new TypeError("Cannot merge no disks");
  await copySparse(bottom, outPath);
  // A commit opens both sides for writing; a layer is shared and in use.
  const copy = `${outPath}.upper`;
  for (const upper of uppers) {
    options.signal?.throwIfAborted();
    try {
      await copySparse(upper, copy);
      await commit(diskChain([outPath, copy], rootfs), options.signal);
    } finally {
      await rm(copy, { force: true });
    }
  }
}

async function commit(chain: string, signal: AbortSignal | undefined): Promise<void> {
  try {
    await runCommand("qemu-img", ["commit", "-q", "-d", chain], signal === undefined ? {} : { signal });
  } catch (error) {
    signal?.throwIfAborted();
    // The program has no other way to say it.
    if (error instanceof Error && /No space left on device/.test(error.message)) {
      throw new AppError("disk_full", "Cannot merge the disks: no space is left. Free some and try again", {
        cause: error,
      });
    }
    throw error;
  }
}
