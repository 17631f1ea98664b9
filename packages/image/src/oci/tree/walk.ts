/** Finds directories in a merged tree. Pure. */
import { readable } from "../tar/header.ts";
import { LayerFault } from "./layer-fault.ts";
import type { Directory, Leaf } from "./node.ts";

const maxName = 255;
const maxPath = 4095;
const maxLinks = 40;
/** As deep as the longest path of the guest. */
const maxDepth = 2048;

/** The parts of a name in an archive. Throws LayerFault for one that leads out of the tree. */
export function splitName(name: string): string[] {
  const parts = partsOf(name);
  if (name.length > maxPath) throw new LayerFault(`a name has more than ${maxPath} bytes`);
  for (const part of parts) {
    if (part === "..") throw new LayerFault(`"${readable(name)}" leads out of the image`);
    if (part.length > maxName)
      throw new LayerFault(`"${readable(name)}" has a part of more than ${maxName} bytes`);
    if (part.includes("\0")) throw new LayerFault(`"${readable(name)}" has a NUL byte`);
  }
  return parts;
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}

type Turns = {
  /** whether to go where a link leads */
  follows: (link: Leaf) => boolean;
  /** what to use where there is no directory; undefined ends the walk */
  missing: (parent: Directory, name: string, found: Leaf | undefined) => Directory | undefined;
};

/** The directory at a path, as a process would find it whose root is that of the tree. */
export function walk(root: Directory, path: readonly string[], turns: Turns): Directory | undefined {
  const left = [...path].reverse();
  let done: Directory[] = [root];
  let links = 0;
  for (let part = left.pop(); part !== undefined; part = left.pop()) {
    const parent = done.at(-1) ?? root;
    if (part === "..") {
      // The root is its own parent.
      if (done.length > 1) done.pop();
      continue;
    }
    const child = parent.children.get(part);
    if (child?.type === "directory") {
      done.push(child);
      continue;
    }
    if (child?.inode.type === "link" && turns.follows(child)) {
      if (++links > maxLinks) throw new LayerFault(`"${readable(path.join("/"))}" has too many links`);
      const { target } = child.inode;
      if (target.startsWith("/")) done = [root];
      left.push(...partsOf(target).reverse());
      continue;
    }
    const made = turns.missing(parent, part, child);
    if (made === undefined) return undefined;
    done.push(made);
    if (done.length > maxDepth) throw new LayerFault(`"${readable(path.join("/"))}" is nested too deeply`);
  }
  return done.at(-1);
}
