/**
 * What steps of recipes make, layers of a disk or states of a machine: `<images>/layers/<digest>/` with its file or files and info.json.
 *
 * The digest covers the step and the instance of what is below: a layer is never over other content than that
 * over which it was made.
 */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "@forkd/base";
import { z } from "zod";
import { ensureEntry, requireSpace } from "../cache.ts";
import type { BuildContext } from "../context.ts";
import { layerDigest, type LayerStep } from "../recipe/resolve-steps.ts";

/** The file of a layer of the disk in its entry. */
export const layerName = "layer.qcow2";

/** More than a small step needs. */
const neededBytes = 256 * 2 ** 20;

const layerInfoSchema = z.object({
  digest: z.string(),
  /** what a layer over this one is over */
  instance: z.string(),
  /** the step, for people */
  source: z.string(),
  /** the entry has the state of a machine after the step, which no snapshot needs */
  isState: z.boolean().optional(),
});

type LayerPlace = {
  /** of the entry; its name changes when it is complete */
  directory: string;
  /** for other files of the step */
  work: string;
  instance: string;
};

type LayerInput = {
  step: LayerStep;
  /** instance of the root file system or layer below */
  below: string;
  make: (place: LayerPlace) => Promise<void>;
  /** Links the files of the entry before another build can replace them. */
  pin?: (directory: string) => Promise<void>;
  isState?: boolean;
};

/** The layer of a step, from the cache unless it is missing. A failure leaves nothing behind. */
export async function ensureLayer(
  imageDir: string,
  { step, below, make, pin, isState = false }: LayerInput,
  context: BuildContext & { isFresh?: boolean | undefined },
): Promise<{ directory: string; instance: string; isCached: boolean }> {
  const digest = layerDigest(below, step);
  let isCached = true;
  const { instance, directory } = await ensureEntry({
    parent: join(imageDir, "layers"),
    digest,
    info: layerInfoSchema,
    signal: context.signal,
    lease: context.lease,
    isFresh: context.isFresh,
    pin,
    build: async (place) => {
      isCached = false;
      await requireSpace(place, neededBytes);
      const own = randomUUID();
      const work = join(place, "work");
      await mkdir(work, { mode: 0o711 });
      await make({ directory: place, work, instance: own });
      await removeTree(work);
      const source = step.label.slice(0, 200);
      return { digest, instance: own, source, ...(isState && { isState }) };
    },
  });
  return { instance, directory, isCached };
}
