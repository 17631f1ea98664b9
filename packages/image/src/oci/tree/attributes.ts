/** Which extended attributes of a layer reach the guest. Pure. */
import type { TarEntry } from "../tar/entries.ts";
import { readable } from "../tar/header.ts";
import { LayerFault } from "./layer-fault.ts";
import type { Notes } from "./notes.ts";

/** ext4 keeps the attributes of a file in one block. */
const maxBytes = 3800;
const none: ReadonlyMap<string, string> = new Map();

/**
 * Capabilities and the attributes of programs. Others belong to the machine that made the layer (labels of a
 * security module, marks of its overlay file system).
 */
function isKept(name: string, type: string): boolean {
  if (name === "security.capability") return type === "0";
  return name.startsWith("user.") && (type === "0" || type === "5");
}

export function keptAttributes({ name, type, xattrs }: TarEntry, notes: Notes): ReadonlyMap<string, string> {
  if (xattrs.size === 0) return none;
  const kept = new Map<string, string>();
  let bytes = 0;
  for (const [key, value] of xattrs) {
    if (!isKept(key, type)) {
      notes.leaveOut(`attribute "${readable(key)}" of "${readable(name)}"`);
      continue;
    }
    kept.set(key, value);
    bytes += key.length + value.length;
  }
  if (bytes > maxBytes)
    throw new LayerFault(`"${readable(name)}" has more than ${maxBytes} bytes of extended attributes`);
  return kept;
}
