/** Imports an ext4 image of the user: copies, checks, safely repairs and, if requested, grows it. */
import { stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract";
import { requireSpace } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { runTool, ToolFailure } from "../tool.ts";
import { requireUnchanged, type FileState } from "../files/user-file.ts";

const mib = 2 ** 20;

/** Creates `<directory>/rootfs.ext4` of `size` MiB, which is at least the size of the source. */
export async function copyImage(
  directory: string,
  { source, size, info, context }: { source: string; size: number; info: FileState; context: BuildContext },
): Promise<{ diskMib: number }> {
  const { signal } = context;
  const image = join(directory, "rootfs.ext4");
  await requireSpace(directory, (await stat(source)).blocks * 512);
  context.onProgress?.("copy", `Copying ${source}`);
  await runTool("cp", ["--sparse=always", "--reflink=auto", "--no-preserve=mode", "--", source, image], {
    signal,
  });
  await requireUnchanged(source, info);
  context.onProgress?.("check", "Checking the file system");
  await checkImage(image, source, signal);
  if (size * mib > info.size) {
    context.onProgress?.("grow", `Growing the image to ${size} MiB`);
    await truncate(image, size * mib);
    await runTool("resize2fs", [image], { signal });
  }
  return { diskMib: size };
}

/** Replays the journal and makes safe repairs. e2fsck: 0 clean, 1 or 2 repaired, 4 and more not repaired. */
async function checkImage(image: string, source: string, signal: AbortSignal | undefined): Promise<void> {
  try {
    await runTool("e2fsck", ["-f", "-p", image], { signal });
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error;
    if (error.exitCode !== null && error.exitCode < 4) return;
    throw new AppError("invalid_image", `Cannot use "${source}": its file system is damaged`, {
      details: { log: error.output.slice(-2000) },
      remedy: advice("Repair it with e2fsck."),
      cause: error,
    });
  }
}
