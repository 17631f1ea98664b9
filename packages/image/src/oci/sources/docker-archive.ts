/** The output of `docker save`: an archive with manifest.json, a config and layers. */
import { createHash } from "node:crypto";
import type { LayerFile } from "../layer-file.ts";
import { DocumentFault, parseConfig, parseSavedImages, type ConfigDocument } from "../manifest.ts";
import { readDocument, type Archive } from "./archive.ts";

type SavedImage = { config: ConfigDocument; configDigest: string; layers: LayerFile[] };

/** The image with a name like `app:1.0`, or the only one. Throws DocumentFault. */
export async function readSavedImage(archive: Archive, tag: string | undefined): Promise<SavedImage> {
  const list = archive.find("manifest.json");
  if (list === undefined)
    throw new DocumentFault("it has no manifest.json, so it was not made by `docker save`");
  const image = choose(parseSavedImages(await readDocument(list, "manifest.json")), tag);
  const configPart = archive.find(image.Config);
  if (configPart === undefined) throw new DocumentFault(`its config "${image.Config}" is missing`);
  const bytes = await readDocument(configPart, "config");
  const config = parseConfig(bytes);
  const { diff_ids: diffIds } = config.rootfs;
  const names = image.Layers ?? [];
  if (names.length !== diffIds.length)
    throw new DocumentFault(`it has ${names.length} layers, but its config names ${diffIds.length}`);
  const layers = names.map((name, index): LayerFile => {
    const part = archive.find(name);
    if (part === undefined)
      throw new DocumentFault(`layer ${index + 1} of ${names.length} ("${name}") is missing`);
    return { ...part, diffId: hexOf(diffIds[index] ?? "") };
  });
  return { config, configDigest: createHash("sha256").update(bytes).digest("hex"), layers };
}

type Listed = ReturnType<typeof parseSavedImages>[number];

function choose(images: readonly Listed[], tag: string | undefined): Listed {
  const [first] = images;
  if (first === undefined) throw new DocumentFault("its manifest.json names no image");
  const names = images.flatMap(({ RepoTags }) => RepoTags ?? []);
  if (tag === undefined) {
    if (images.length === 1) return first;
    throw new DocumentFault(`it has several images, so a name must be given: ${names.join(", ")}`);
  }
  const found = images.find(({ RepoTags }) =>
    RepoTags?.some((name) => name === tag || name.endsWith(`/${tag}`)),
  );
  if (found) return found;
  throw new DocumentFault(
    `it has no image "${tag}"; ${names.length === 0 ? "its image has no name" : `it has ${names.join(", ")}`}`,
  );
}

export function hexOf(digest: string): string {
  return digest.slice(digest.indexOf(":") + 1);
}
