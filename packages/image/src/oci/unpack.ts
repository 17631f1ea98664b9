/** Unpacks the layers of an image into a directory. Runs in a worker (unpack-worker.ts). */
import { errorMessage } from "@forkd/contract";
import { runAsRoot } from "../namespace.ts";
import { ToolFailure } from "../tool.ts";
import { readLayer, type LayerFile } from "./layer-file.ts";
import { ByteReader } from "./tar/byte-reader.ts";
import { readEntries } from "./tar/entries.ts";
import { TarFault } from "./tar/header.ts";
import { flatten, writeArchive, type FlatTree } from "./tree/flatten.ts";
import { LayerFault } from "./tree/layer-fault.ts";
import { MergedTree } from "./tree/merge.ts";
import { Notes } from "./tree/notes.ts";

export type UnpackInput = {
  /** from the bottom up */
  layers: readonly LayerFile[];
  /** an existing empty directory */
  tree: string;
  /** most bytes of all layers when they are decompressed */
  maxBytes: number;
  /** paths that the guest needs as directories, such as that of WORKDIR */
  directories: readonly string[];
};

export type Unpacked = {
  /** of the content of all files */
  bytes: number;
  /** files, directories and links */
  entries: number;
  /** what was left out */
  note?: string | undefined;
};

type UnpackContext = {
  signal?: AbortSignal | undefined;
  onProgress?: ((step: "read" | "unpack", message: string) => void) | undefined;
  /** called when the size is known, before anything is written */
  onSize?: ((bytes: number) => Promise<void>) | undefined;
};

/** The agent mounts file systems there. */
const mountPoints = ["proc", "sys", "dev"];
const usualDirectories: readonly [string, number][] = [
  ["/etc", 0o755],
  ["/run", 0o755],
  ["/tmp", 0o1777],
];

/** An image that cannot be unpacked, and why. */
export class UnpackFault extends Error {
  override readonly name = "UnpackFault";
}

/** Throws UnpackFault if a layer is damaged or cannot be used. */
export async function unpackLayers(input: UnpackInput, context: UnpackContext = {}): Promise<Unpacked> {
  const notes = new Notes();
  const flat = flatten((await mergeLayers(input, notes, context)).root);
  await context.onSize?.(flat.bytes);
  await writeTree(input, flat, context);
  return { bytes: flat.bytes, entries: flat.entries, note: notes.text };
}

async function mergeLayers(input: UnpackInput, notes: Notes, context: UnpackContext): Promise<MergedTree> {
  const { layers, maxBytes } = input;
  const tree = new MergedTree(notes);
  let left = maxBytes;
  for (const [index, layer] of layers.entries()) {
    context.onProgress?.("read", `Reading layer ${index + 1} of ${layers.length}`);
    await inLayer(layers, index, async () => {
      const { content, check } = await readLayer(layer, { maxBytes: left, signal: context.signal });
      const reader = new ByteReader(content);
      for await (const entry of readEntries(reader)) tree.add(entry, index);
      left -= reader.position;
      check();
    });
  }
  for (const name of mountPoints) tree.makeMountPoint(name);
  for (const [path, mode] of usualDirectories) tree.makeDirectory(path, mode);
  for (const path of input.directories) {
    if (!tree.makeDirectory(path, 0o755))
      throw new UnpackFault(`"${path}" should be a directory, but the image has another file there`);
  }
  return tree;
}

async function writeTree(input: UnpackInput, flat: FlatTree, context: UnpackContext): Promise<void> {
  const { layers, tree, maxBytes } = input;
  const { signal } = context;
  const archive = writeArchive(flat, async (index) => {
    const layer = layers[index];
    if (layer === undefined) throw new Error(`no layer ${index}`);
    context.onProgress?.("unpack", `Unpacking layer ${index + 1} of ${layers.length}`);
    const { content, check } = await readLayer(layer, { maxBytes, signal });
    const reader = new ByteReader(content);
    return {
      reader,
      // The bytes that were just written are compared again: the file may have changed since it was merged.
      finish: () =>
        inLayer(layers, index, async () => {
          await reader.drain();
          check();
        }),
    };
  });
  const owners = ["--numeric-owner", "--same-owner", "--same-permissions", "--delay-directory-restore"];
  const attributes = ["--xattrs", "--xattrs-include=*"];
  try {
    await runAsRoot("tar", ["-x", "-f", "-", "-C", tree, ...owners, ...attributes], {
      signal,
      input: archive,
    });
  } catch (error) {
    if (error instanceof LayerFault || error instanceof TarFault)
      throw new UnpackFault(`a layer changed while it was read: ${error.message}`, { cause: error });
    if (!(error instanceof ToolFailure)) throw error;
    throw new UnpackFault(`it cannot be unpacked: ${error.output.trim().split("\n")[0] ?? ""}`);
  }
}

/** Names the layer in a fault of it. */
async function inLayer(
  layers: readonly LayerFile[],
  index: number,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof LayerFault || error instanceof TarFault)) throw error;
    const { digest, diffId } = layers[index] ?? { diffId: "" };
    const name = `layer ${index + 1} of ${layers.length} (sha256:${(digest ?? diffId).slice(0, 12)})`;
    throw new UnpackFault(`${name}: ${errorMessage(error)}`, { cause: error });
  }
}
