/** Writes tar archives with any content, right or wrong, for tests of readers. */

export type TarMember = {
  name: string;
  /** type flag; default: a file, or a directory if the name ends with a slash */
  type?: string;
  content?: string | Uint8Array;
  link?: string;
  mode?: number;
  uid?: number;
  gid?: number;
  mtime?: number;
  /** records of a pax header before the member */
  pax?: Record<string, string>;
};

export function tarOf(members: readonly TarMember[], { end = true } = {}): Buffer {
  const parts = members.flatMap((member) => {
    const { pax } = member;
    const own = memberBlocks(member);
    if (!pax) return own;
    const records = Object.entries(pax).map(([key, value]) => paxRecord(key, value));
    return [...memberBlocks({ name: "pax", type: "x", content: Buffer.concat(records) }), ...own];
  });
  return Buffer.concat([...parts, ...(end ? [Buffer.alloc(1024)] : [])]);
}

function memberBlocks(member: TarMember): Buffer[] {
  const { name, content = "", link = "", uid = 0, gid = 0, mtime = 1_600_000_000 } = member;
  const type = member.type ?? (name.endsWith("/") ? "5" : "0");
  const mode = member.mode ?? (type === "5" ? 0o755 : 0o644);
  const bytes = Buffer.from(content);
  const header = Buffer.alloc(512);
  const octal = (value: number, at: number, length: number) =>
    header.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at, "latin1");
  header.write(name, 0, 100, "utf8");
  octal(mode, 100, 8);
  octal(uid, 108, 8);
  octal(gid, 116, 8);
  octal(bytes.length, 124, 12);
  octal(mtime, 136, 12);
  header.write("        ", 148, "latin1");
  header.write(type, 156, "latin1");
  header.write(link, 157, 100, "utf8");
  header.write("ustar\x0000", 257, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return [header, bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)];
}

function paxRecord(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + 1;
  while (String(length).length + rest !== length) length = String(length).length + rest;
  return Buffer.from(`${length} ${key}=${value}\n`);
}
