/**
 * Layers of disks, as steps of recipes make them: `<images>/layers/<digest>/` with a qcow2 file and info.json.
 *
 * The digest covers the step and the instance of what is below: a layer is never over other content than that
 * over which it was made.
 */
import { randomUUID } from "node:crypto";
import { mkdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "@forkd/base";
import { z } from "zod";
import { ensureEntry } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { layerDigest, type LayerStep } from "../recipe/resolve-steps.ts";

const layerName = "layer.qcow2";

const layerInfoSchema = z.object({
  digest: z.string(),
  /** what a layer over this one is over */
  instance: z.string(),
  /** the step, for people */
  source: z.string(),
  bytes: z.number(),
});

export type Layer = { instance: string; isCached: boolean };

type LayerInput = {
  step: LayerStep;
  /** instance of the root file system or layer below */
  below: string;
  /** Runs the step on a disk whose changes go to the file `overlay`, which it creates. `work` is a directory for its other files. */
  run: (place: { overlay: string; work: string }) => Promise<void>;
  /** Links the layer before another build can replace it. */
  pin: (path: string) => Promise<void>;
};

/** The layer of a step, from the cache unless it is missing. A failure leaves nothing behind. */
export async function ensureLayer(
  imageDir: string,
  { step, below, run, pin }: LayerInput,
  context: BuildContext & { isFresh?: boolean | undefined },
): Promise<Layer> {
  const digest = layerDigest(below, step);
  let isCached = true;
  const { instance } = await ensureEntry({
    parent: join(imageDir, "layers"),
    digest,
    info: layerInfoSchema,
    signal: context.signal,
    lease: context.lease,
    isFresh: context.isFresh,
    pin: (directory) => pin(join(directory, layerName)),
    build: async (directory) => {
      isCached = false;
      const overlay = join(directory, layerName);
      const work = join(directory, "work");
      await mkdir(work, { mode: 0o711 });
      await run({ overlay, work });
      await removeTree(work);
      const { blocks } = await stat(overlay);
      return { digest, instance: randomUUID(), source: step.label.slice(0, 200), bytes: blocks * 512 };
    },
  });
  return { instance, isCached };
}
