/** OCI image layouts: a directory, or an archive of one. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import type { FilePart } from "../file-part.ts";
import { DocumentFault, parseIndexOrManifest, type Descriptor } from "../manifest.ts";
import { readDocument, type Archive } from "./archive.ts";
import type { BlobSource } from "./source.ts";

/** Finds a file of the layout by its name. */
type FindFile = (name: string) => Promise<FilePart | undefined>;

export function filesOfDirectory(directory: string): FindFile {
  return async (name) => {
    const path = join(directory, name);
    try {
      const info = await stat(path);
      return info.isFile() ? { path, offset: 0, size: info.size } : undefined;
    } catch (error) {
      if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
      throw error;
    }
  };
}

export function filesOfArchive(archive: Archive): FindFile {
  return (name) => Promise.resolve(archive.find(name));
}

/** The image with a tag, or the only one. */
export function openLayout(find: FindFile, tag: string | undefined): BlobSource {
  const blob = async ({ digest, size }: Descriptor, what: string): Promise<FilePart> => {
    const found = await find(`blobs/sha256/${digest.slice("sha256:".length)}`);
    if (found === undefined) throw new DocumentFault(`${what} (${digest}) is missing`);
    if (found.size !== size)
      throw new DocumentFault(`${what} (${digest}) has ${found.size} bytes, but should have ${size}`);
    return found;
  };
  return {
    top: async () => {
      const index = await find("index.json");
      if (index === undefined) throw new DocumentFault("it has no index.json, so it is not an OCI layout");
      const parsed = parseIndexOrManifest(await readDocument(index, "index.json"), undefined);
      if (!("index" in parsed)) throw new DocumentFault("its index.json is not an index");
      const chosen = chooseTag(parsed.index, tag);
      return { bytes: Buffer.from(JSON.stringify({ manifests: chosen })) };
    },
    document: async (descriptor) => await readDocument(await blob(descriptor, "a document"), "document"),
    layers: async (descriptors) => {
      const parts: FilePart[] = [];
      for (const [index, descriptor] of descriptors.entries())
        parts.push(await blob(descriptor, `layer ${index + 1} of ${descriptors.length}`));
      return parts;
    },
  };
}

const nameKeys = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/** Entries of one name are the platforms of one image. */
function chooseTag(entries: readonly Descriptor[], tag: string | undefined): readonly Descriptor[] {
  const names = (entry: Descriptor): string[] => nameKeys.flatMap((key) => entry.annotations?.[key] ?? []);
  const known = [
    ...new Set(entries.map((entry) => entry.annotations?.[nameKeys[0] ?? ""] ?? names(entry)[0] ?? "")),
  ];
  const list = known.filter((name) => name !== "").join(", ");
  if (tag === undefined) {
    if (entries.length === 0) throw new DocumentFault("its index.json names no image");
    if (known.length > 1) throw new DocumentFault(`it has several images, so a tag must be given: ${list}`);
    return entries;
  }
  const chosen = entries.filter((entry) =>
    names(entry).some((name) => name === tag || name.endsWith(`:${tag}`)),
  );
  if (chosen.length > 0) return chosen;
  throw new DocumentFault(
    `it has no image with the tag "${tag}"; ${list === "" ? "its images have no tags" : `it has ${list}`}`,
  );
}
