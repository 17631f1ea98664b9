/** Container images as root file systems: opens one, and unpacks it into a directory. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Scope } from "@forkd/base";
import { Registries } from "@forkd/registry";
import type { BuildContext } from "../context.ts";
import type { ImageConfig } from "./image-config.ts";
import { parseReference } from "./reference.ts";
import { maxUnpackedBytes } from "./limits.ts";
import { resolveImage } from "./resolve.ts";
import { openRegistryImage } from "./sources/registry.ts";
import { unpackInWorker } from "./unpack-in-worker.ts";
import type { Unpacked } from "./unpack.ts";

/** The container image that a root file system was made from. */
export type BaseImage = {
  /** as the user wrote it */
  reference: string;
  /** of its manifest, or of its config if it comes from `docker save` */
  digest: string;
  config: ImageConfig;
};

/** An image that was found, and can be unpacked. Disposing it removes temporary files. */
type OpenImage = AsyncDisposable & {
  readonly base: BaseImage;
  /** names the content of all layers */
  readonly contentDigest: string;
  /** Makes `<work>/tree`. */
  readonly unpack: (work: string) => Promise<Unpacked & { tree: string }>;
};

/** Relative paths start at `directory`. Throws `invalid_image`, or what a registry answers. */
export async function openImage(
  input: { imageDir: string; image: string; directory?: string | undefined },
  context: BuildContext,
): Promise<OpenImage> {
  const { imageDir, image, directory } = input;
  await using scope = new Scope();
  const reference = parseReference(image, directory);
  context.onProgress?.("read", `Reading ${image}`);
  const openRegistry = (name: string) => {
    const registries = context.registries ?? new Registries();
    if (!context.registries) scope.defer(() => registries[Symbol.dispose]());
    return openRegistryImage(registries, name, { imageDir, context });
  };
  const found = await resolveImage({ name: image, reference, imageDir, openRegistry }, scope, context);
  const { config, digest } = found;
  const owned = scope.keep();
  return {
    base: { reference: image, digest, config },
    contentDigest: found.configDigest,
    unpack: async (work) => {
      const tree = join(work, "tree");
      await mkdir(tree, { mode: 0o755 });
      const layers = await found.fetchLayers();
      const directories = [config.workdir, ...config.volumes];
      const unpacked = await unpackInWorker(
        { image, layers, tree, maxBytes: maxUnpackedBytes, directories },
        context,
      );
      if (unpacked.note !== undefined) context.onProgress?.("unpack", unpacked.note);
      return { ...unpacked, tree };
    },
    [Symbol.asyncDispose]: () => owned[Symbol.asyncDispose](),
  };
}
