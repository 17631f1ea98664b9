/** Entries of directories as E2B's clients read them. Pure. */
import type { FileEntry } from "@forkd/contract";

export type EntryInfo = {
  name: string;
  type: "FILE_TYPE_FILE" | "FILE_TYPE_DIRECTORY" | "FILE_TYPE_SYMLINK" | "FILE_TYPE_UNSPECIFIED";
  path: string;
  /** int64 */
  size: string;
  /** permission bits */
  mode: number;
  /** such as `-rw-r--r--` */
  permissions: string;
  owner: string;
  group: string;
  modifiedTime: string;
  symlinkTarget?: string;
};

/** Type and mode of a symbolic link are those of the file that it leads to. */
export function entryInfo(entry: FileEntry): EntryInfo {
  const { type, mode } = entry.resolved ?? entry;
  return {
    name: entry.name,
    type: fileType(type),
    path: entry.path,
    size: String(Math.max(0, Math.trunc(entry.size))),
    mode: bitsOf(mode) & 0o777,
    permissions: goPermissions(entry),
    owner: entry.owner ?? String(entry.uid),
    group: entry.group ?? String(entry.gid),
    modifiedTime: timestamp(entry.mtime_unix),
    ...(entry.type === "symlink" && { symlinkTarget: entry.resolved?.path ?? entry.target ?? "" }),
  };
}

function fileType(type: FileEntry["type"]): EntryInfo["type"] {
  if (type === "file") return "FILE_TYPE_FILE";
  if (type === "directory") return "FILE_TYPE_DIRECTORY";
  return type === "symlink" ? "FILE_TYPE_SYMLINK" : "FILE_TYPE_UNSPECIFIED";
}

function bitsOf(mode: string): number {
  return Number.parseInt(mode, 8);
}

const typeLetters: Record<FileEntry["type"], string> = {
  file: "",
  directory: "d",
  symlink: "L",
  fifo: "p",
  socket: "S",
  block: "D",
  char: "Dc",
};

/** A mode as Go prints it: type and special bits first, then the nine permissions. */
export function goPermissions(entry: Pick<FileEntry, "type" | "mode">): string {
  const bits = bitsOf(entry.mode);
  const special = (bits & 0o4000 ? "u" : "") + (bits & 0o2000 ? "g" : "") + (bits & 0o1000 ? "t" : "");
  const nine = "rwxrwxrwx".split("").map((letter, index) => (bits & (0o400 >> index) ? letter : "-"));
  return (typeLetters[entry.type] + special || "-") + nine.join("");
}

/** The range of a protobuf Timestamp; a guest may claim any time. */
const firstSecond = -62_135_596_800;
const lastSecond = 253_402_300_799;

function timestamp(unixSecs: number): string {
  const secs = Math.min(lastSecond, Math.max(firstSecond, unixSecs));
  return new Date(Math.round(secs * 1000)).toISOString();
}
