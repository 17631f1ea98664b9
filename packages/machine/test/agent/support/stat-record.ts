/** Records of files as the agent sends them. */

export function text(value: string): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16LE(Buffer.byteLength(value));
  return Buffer.concat([length, Buffer.from(value)]);
}

type Texts = { target?: string; owner?: string; group?: string; resolved?: string };

export function statRecord(name: string, texts: Texts = {}, type = "f", endType = "\0"): Buffer {
  const fixed = Buffer.alloc(34);
  fixed.write(type, 0, "latin1");
  fixed.write(endType, 29, "latin1");
  const { target = "", owner = "", group = "", resolved = "" } = texts;
  return Buffer.concat([fixed, ...[name, target, owner, group, resolved].map(text)]);
}

/** A listing: the record of the directory, then those of its entries. */
export function listing(...entries: readonly Buffer[]): Buffer {
  return Buffer.concat([statRecord("/dir", {}, "d"), ...entries]);
}

export function watchRecord(
  change: string,
  path: string,
  from = "",
  entry: Buffer = Buffer.alloc(0),
): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16LE(entry.length);
  return Buffer.concat([Buffer.from(change, "latin1"), text(path), text(from), length, entry]);
}
