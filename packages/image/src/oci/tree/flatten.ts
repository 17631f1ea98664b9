/** Writes a merged tree as one archive: each name once, directories before what is in them. */
import { encodeHeader, paddingOf } from "../tar/header.ts";
import type { ByteReader } from "../tar/byte-reader.ts";
import type { Attributes, Directory, Inode } from "./node.ts";

const noAttributes: ReadonlyMap<string, string> = new Map();
const pieceBytes = 256 * 1024;

type FileInode = Extract<Inode, { type: "file" }>;

/** A tree as a list. */
export type FlatTree = {
  directories: { name: string; node: Directory }[];
  /** files with their first name, by layer, in the order in which the layer has them */
  files: Map<number, { name: string; inode: FileInode }[]>;
  others: { name: string; inode: Exclude<Inode, FileInode> }[];
  hardLinks: { name: string; to: string; inode: Inode }[];
  /** of the content of its files */
  bytes: number;
  /** number of inodes */
  entries: number;
};

export function flatten(root: Directory): FlatTree {
  const flat: FlatTree = {
    directories: [],
    files: new Map(),
    others: [],
    hardLinks: [],
    bytes: 0,
    entries: 0,
  };
  const names = new Map<Inode, string>();
  const visit = (prefix: string, directory: Directory): void => {
    for (const name of [...directory.children.keys()].sort()) {
      const node = directory.children.get(name);
      const path = prefix + name;
      if (node?.type === "directory") {
        flat.directories.push({ name: path, node });
        flat.entries++;
        visit(`${path}/`, node);
      } else if (node) addFile(flat, names, path, node.inode);
    }
  };
  visit("", root);
  for (const files of flat.files.values()) files.sort((a, b) => a.inode.offset - b.inode.offset);
  return flat;
}

function addFile(flat: FlatTree, names: Map<Inode, string>, name: string, inode: Inode): void {
  const first = names.get(inode);
  if (first !== undefined) {
    flat.hardLinks.push({ name, to: first, inode });
    return;
  }
  names.set(inode, name);
  flat.entries++;
  if (inode.type !== "file") {
    flat.others.push({ name, inode });
    return;
  }
  flat.bytes += inode.size;
  const files = flat.files.get(inode.layer) ?? [];
  flat.files.set(inode.layer, files);
  files.push({ name, inode });
}

/** The archive. `open` gives the content of a layer and what to call when it was read. */
export async function* writeArchive(
  flat: FlatTree,
  open: (layer: number) => Promise<{ reader: ByteReader; finish: () => Promise<void> }>,
): AsyncGenerator<Buffer> {
  yield* inPieces(entriesOf(flat, open));
}

async function* entriesOf(flat: FlatTree, open: Parameters<typeof writeArchive>[1]): AsyncGenerator<Buffer> {
  for (const { name, node } of flat.directories) yield header(`${name}/`, node, { type: "5" });
  for (const layer of [...flat.files.keys()].sort((a, b) => a - b)) {
    const { reader, finish } = await open(layer);
    for (const { name, inode } of flat.files.get(layer) ?? []) {
      yield header(name, inode, { type: "0", size: inode.size });
      await reader.skip(inode.offset - reader.position);
      yield* reader.pieces(inode.size);
      yield Buffer.alloc(paddingOf(inode.size));
    }
    await finish();
  }
  for (const { name, inode } of flat.others) {
    if (inode.type === "link") yield header(name, inode, { type: "2", link: inode.target });
    else yield header(name, inode, { type: "6" });
  }
  for (const { name, to, inode } of flat.hardLinks)
    yield header(name, { ...inode, xattrs: noAttributes }, { type: "1", link: to });
  yield Buffer.alloc(1024);
}

function header(
  name: string,
  { mode, uid, gid, mtime, xattrs }: Attributes,
  more: { type: "0" | "1" | "2" | "5" | "6"; size?: number; link?: string },
): Buffer {
  return encodeHeader({ name, mode, uid, gid, mtime, size: 0, link: "", ...more }, xattrs);
}

/** Headers and small files together, because each piece costs a system call. */
async function* inPieces(parts: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let bytes = 0;
  for await (const part of parts) {
    held.push(part);
    bytes += part.length;
    if (bytes < pieceBytes) continue;
    yield Buffer.concat(held, bytes);
    held = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(held, bytes);
}
