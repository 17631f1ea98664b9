/**
 * Writes tar archives for the `tar` of a guest: GNU tar and busybox read this form (ustar, with a pax header
 * for paths that do not fit).
 */

const blockBytes = 512;
const maxNameBytes = 100;

type ArchiveFile = { readonly path: string; readonly mode: number; readonly content: Uint8Array };

/** Two empty blocks end an archive. */
export const archiveEnd: Uint8Array = new Uint8Array(2 * blockBytes);

/** One file with its header, owned by root and changed now. */
export function archiveEntry({ path, mode, content }: ArchiveFile): Buffer {
  const name = Buffer.from(path);
  const parts: Uint8Array[] = [];
  if (name.length > maxNameBytes) {
    const record = paxRecord("path", name);
    parts.push(header({ name: Buffer.from("pax"), mode: 0o600, size: record.length, type: "x" }), record);
    parts.push(padding(record.length));
  }
  parts.push(header({ name: name.subarray(0, maxNameBytes), mode, size: content.length, type: "0" }));
  parts.push(content, padding(content.length));
  return Buffer.concat(parts);
}

function header(entry: { name: Buffer; mode: number; size: number; type: "0" | "x" }): Buffer {
  const block = Buffer.alloc(blockBytes);
  const octal = (value: number, at: number, digits: number) =>
    block.write(`${value.toString(8).padStart(digits, "0")}\0`, at, "latin1");
  entry.name.copy(block, 0);
  octal(entry.mode & 0o7777, 100, 7);
  octal(0, 108, 7);
  octal(0, 116, 7);
  octal(entry.size, 124, 11);
  octal(Math.floor(Date.now() / 1000), 136, 11);
  block.write(entry.type, 156, "latin1");
  block.write("ustar\x0000", 257, "latin1");
  // The checksum counts its own field as spaces.
  block.fill(" ", 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** "LENGTH KEY=VALUE\n", where the length counts its own digits. */
function paxRecord(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length + 1;
  while (`${length}`.length + rest.length !== length) length += 1;
  return Buffer.concat([Buffer.from(`${length}`), rest]);
}

function padding(size: number): Uint8Array {
  return new Uint8Array((blockBytes - (size % blockBytes)) % blockBytes);
}
