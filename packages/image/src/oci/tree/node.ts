/** What a merged tree consists of. Names and targets are latin1 strings of bytes. */

export type Attributes = {
  mode: number;
  uid: number;
  gid: number;
  mtime: string;
  xattrs: ReadonlyMap<string, string>;
};

/** The content of one or several names (hard links). */
export type Inode = Attributes &
  (
    | { type: "file"; layer: number; offset: number; size: number }
    | { type: "link"; target: string }
    | { type: "fifo" }
  );

/** A name of a file; `layer` is the one that has the name. */
export type Leaf = { type: "leaf"; layer: number; inode: Inode };

export type Directory = Attributes & {
  type: "directory";
  /** the last layer that describes it; -1: none does */
  layer: number;
  children: Map<string, Leaf | Directory>;
};

const noAttributes: ReadonlyMap<string, string> = new Map();

/** A directory that no layer describes. */
export function plainDirectory(layer: number, mode = 0o755): Directory {
  return {
    type: "directory",
    layer,
    children: new Map(),
    mode,
    uid: 0,
    gid: 0,
    mtime: "0",
    xattrs: noAttributes,
  };
}
