/** Writes the whole memory of a chain to one file. */
import { copySparse } from "@forkd/base";
import { applyLayer, openLayer } from "./layer.ts";

export type MemoryParts = {
  /** a file of the whole memory, which is below all layers */
  whole: string;
  /** bottom to top; `digest` is that of the index */
  layers: readonly { path: string; digest: string }[];
};

export async function copyMemory(
  { whole, layers }: MemoryParts,
  target: string,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<void> {
  await copySparse(whole, target);
  for (const { path, digest } of layers) {
    options.signal?.throwIfAborted();
    await applyLayer(await openLayer(path, digest), target, options);
  }
}
