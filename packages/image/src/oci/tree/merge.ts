/**
 * Merges the layers of a container image into one tree, in memory. Pure.
 *
 * Nothing is written while names are still those of the layers: a link of one layer cannot lead another one out
 * of the tree, because there is no tree on the host yet. The rules are those of an overlay file system, which
 * container runtimes use: a layer hides what it replaces, and a directory that it has only as a parent of its
 * files hides a link or a file of the layers below. Links of the layer itself are followed inside the tree.
 */
import type { TarEntry } from "../tar/entries.ts";
import { readable } from "../tar/header.ts";
import { keptAttributes } from "./attributes.ts";
import { LayerFault } from "./layer-fault.ts";
import { plainDirectory, type Attributes, type Directory, type Inode, type Leaf } from "./node.ts";
import type { Notes } from "./notes.ts";
import { splitName, walk } from "./walk.ts";

const whiteout = ".wh.";
const opaque = ".wh..wh..opq";
/** Files of a storage driver, not of the image. */
const driverPrefix = ".wh..wh.";

const maxTarget = 4095;
const maxId = 0xffff_fffe;
const maxEntries = 1_000_000;
/** of names, links and attributes */
const maxTextBytes = 256 * 2 ** 20;

export class MergedTree {
  readonly root: Directory = plainDirectory(-1);
  readonly #notes: Notes;
  #entries = 0;
  #textBytes = 0;
  /** device nodes that were left out; other names may be hard links to them */
  readonly #devices = new Set<string>();

  constructor(notes: Notes) {
    this.#notes = notes;
  }

  /** Applies the next entry of a layer. Layers come from the bottom up. Throws LayerFault. */
  add(entry: TarEntry, layer: number): void {
    this.#count(entry);
    const path = splitName(entry.name);
    const last = path.pop();
    if (last === undefined) {
      if (entry.type === "5") Object.assign(this.root, this.#attributes(entry), { layer });
      return;
    }
    if (path.some((part) => part.startsWith(driverPrefix))) return;
    if (last.startsWith(whiteout)) return this.#hide(path, last, layer);
    const leaf = entry.type === "5" ? undefined : this.#leaf(entry, layer);
    if (entry.type !== "5" && leaf === undefined) return;
    const parent = this.#makeParent(path, entry.name, layer);
    const old = parent.children.get(last);
    if (leaf === undefined) {
      const attributes = this.#attributes(entry);
      if (old?.type === "directory") Object.assign(old, attributes, { layer });
      else parent.children.set(last, { ...plainDirectory(layer), ...attributes });
      return;
    }
    if (old?.type === "directory" && old.layer === layer)
      throw new LayerFault(`"${readable(entry.name)}" is both a directory and a file`);
    parent.children.set(last, leaf);
  }

  /** Makes sure that a directory exists, where links lead in the guest. False if something else is there. */
  makeDirectory(path: string, mode: number): boolean {
    const parts = splitName(Buffer.from(path, "utf8").toString("latin1"));
    const end = walk(this.root, parts, {
      follows: () => true,
      missing: (parent, name, found) =>
        found === undefined ? added(parent, name, plainDirectory(-1, mode)) : undefined,
    });
    return end !== undefined;
  }

  /** A directory in the root, whatever the image has there. */
  makeMountPoint(name: string): void {
    if (this.root.children.get(name)?.type !== "directory") added(this.root, name, plainDirectory(-1));
  }

  #count({ name, link, xattrs }: TarEntry): void {
    this.#textBytes += name.length + link.length;
    for (const [key, value] of xattrs) this.#textBytes += key.length + value.length;
    if (++this.#entries > maxEntries) throw new LayerFault(`the image has more than ${maxEntries} entries`);
    if (this.#textBytes > maxTextBytes)
      throw new LayerFault(`the names of the image take more than ${maxTextBytes} bytes`);
  }

  #attributes(entry: TarEntry): Attributes {
    const { mode, uid, gid, mtime } = entry;
    if (uid > maxId || gid > maxId)
      throw new LayerFault(
        `"${readable(entry.name)}" belongs to user ${uid} and group ${gid}, which cannot exist`,
      );
    return { mode, uid, gid, mtime, xattrs: keptAttributes(entry, this.#notes) };
  }

  /** Undefined for an entry that is left out. */
  #leaf(entry: TarEntry, layer: number): Leaf | undefined {
    const name = readable(entry.name);
    switch (entry.type) {
      case "0": {
        const { offset, size } = entry;
        return leafOf(layer, { type: "file", ...this.#attributes(entry), layer, offset, size });
      }
      case "1":
        return this.#hardLink(entry, layer);
      case "2":
        if (entry.link === "" || entry.link.length > maxTarget)
          throw new LayerFault(`"${name}" is a link without a usable target`);
        return leafOf(layer, { type: "link", ...this.#attributes(entry), target: entry.link });
      case "3":
      case "4":
        // The guest has its own /dev.
        this.#notes.leaveOut(`device node "${name}"`);
        this.#devices.add(splitName(entry.name).join("/"));
        return undefined;
      case "6":
        return leafOf(layer, { type: "fifo", ...this.#attributes(entry) });
      case "S":
        throw new LayerFault(`"${name}" is a sparse file`);
      default:
        throw new LayerFault(`"${name}" has the unknown type "${readable(entry.type)}"`);
    }
  }

  #hardLink(entry: TarEntry, layer: number): Leaf | undefined {
    const path = splitName(entry.link);
    const target = path.join("/");
    const last = path.pop();
    const parent = walk(this.root, path, { follows: () => true, missing: () => undefined });
    const found = last === undefined ? this.root : parent?.children.get(last);
    if (found?.type === "leaf") return leafOf(layer, found.inode);
    if (this.#devices.has(target)) {
      this.#notes.leaveOut(`device node "${readable(entry.name)}"`);
      return undefined;
    }
    const why = found ? "is a directory" : "does not exist";
    throw new LayerFault(
      `"${readable(entry.name)}" is a hard link to "${readable(entry.link)}", which ${why}`,
    );
  }

  /** The directory for an entry. Links and files of lower layers give way to directories. */
  #makeParent(path: readonly string[], name: string, layer: number): Directory {
    const parent = walk(this.root, path, {
      follows: (link) => link.layer === layer,
      missing: (directory, part, found) =>
        found?.layer === layer ? undefined : added(directory, part, plainDirectory(layer)),
    });
    if (parent === undefined) throw new LayerFault(`"${readable(name)}" is below a file`);
    return parent;
  }

  /** Hides what lower layers have; what this layer has stays, in whatever order its entries come. */
  #hide(path: readonly string[], mark: string, layer: number): void {
    if (mark.startsWith(driverPrefix) && mark !== opaque) return;
    const parent = walk(this.root, path, {
      follows: (link) => link.layer === layer,
      missing: () => undefined,
    });
    if (parent === undefined) return;
    if (mark === opaque) {
      for (const name of parent.children.keys()) hideBelow(parent, name, layer);
      return;
    }
    const name = mark.slice(whiteout.length);
    if (name === "" || name === "." || name === "..")
      throw new LayerFault(`"${readable([...path, mark].join("/"))}" removes nothing that has a name`);
    hideBelow(parent, name, layer);
  }
}

/** Removes a node and what is below it, except for what `layer` has. */
function hideBelow(parent: Directory, name: string, layer: number): void {
  const node = parent.children.get(name);
  if (node === undefined) return;
  if (node.type === "directory") {
    for (const child of node.children.keys()) hideBelow(node, child, layer);
    if (node.children.size > 0) return;
  }
  if (node.layer < layer) parent.children.delete(name);
}

function added(parent: Directory, name: string, child: Directory): Directory {
  parent.children.set(name, child);
  return child;
}

function leafOf(layer: number, inode: Inode): Leaf {
  return { type: "leaf", layer, inode };
}
