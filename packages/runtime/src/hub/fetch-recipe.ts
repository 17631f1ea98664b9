/** Fetches only the recipe of a snapshot, so that this host can build what it cannot restore. */
import { join } from "node:path";
import { parseOciManifest } from "@forkd/archive";
import { advice, AppError, tagPattern } from "@forkd/contract";
import { removeTree } from "@forkd/base";
import { unpackRecipe } from "@forkd/image";
import type { Repository, StoredManifest } from "@forkd/registry";
import { maxAttachmentBytes } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import { extraTypes } from "./extras.ts";

type FetchedRecipe = AsyncDisposable & { readonly dir: string; readonly movedBytes: number };

/** Throws if the snapshot has none. Disposing the result removes the directory. */
export async function fetchRecipe(
  { store }: Pick<Runtime, "store">,
  repository: Repository,
  { manifest, name, signal }: { manifest: StoredManifest; name: string; signal: AbortSignal },
): Promise<FetchedRecipe> {
  const { layers, annotations } = parseOciManifest(Buffer.from(manifest.bytes), manifest.digest);
  const layer = layers.find(({ mediaType }) => mediaType === extraTypes.recipe);
  if (!layer || layer.size > maxAttachmentBytes)
    throw new AppError("snapshot_incompatible", `This host cannot build ${name}: it carries no recipe`, {
      details: { reference: name, can_rebuild: false },
      remedy: advice("Ask its publisher for a snapshot that was built from a recipe."),
    });
  const pieces: Uint8Array[] = [];
  for await (const piece of repository.readBlob(layer, { signal })) pieces.push(piece);
  const staging = await store.staging(undefined);
  // The new snapshot names its recipe by the directory.
  const named = annotations["forkd.snapshot.recipe"];
  const dir = join(staging, named !== undefined && tagPattern.test(named) ? named : "recipe");
  try {
    await unpackRecipe(Buffer.concat(pieces), dir);
  } catch (error) {
    await removeTree(staging);
    throw error;
  }
  return { dir, movedBytes: layer.size, [Symbol.asyncDispose]: () => removeTree(staging) };
}
