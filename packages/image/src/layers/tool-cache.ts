/** The download caches of pip and npm: `<images>/packages/<tool>`. They verify what they find in them. */
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { BuildContext } from "../context.ts";

export async function openToolCache(
  imageDir: string,
  tool: "npm" | "pip",
  { lease }: Pick<BuildContext, "lease">,
): Promise<string> {
  const directory = resolve(join(imageDir, "packages", tool));
  await mkdir(directory, { recursive: true, mode: 0o700 });
  lease?.hold(directory);
  return directory;
}
