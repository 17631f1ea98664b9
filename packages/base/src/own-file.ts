/**
 * Files that this program keeps for itself. They are opened without following a symbolic link and without
 * waiting, and only if they are regular files of a trusted owner: a link or a pipe in their place must
 * neither redirect a write nor block the program.
 */
import { closeSync, constants, fstatSync, openSync, statSync, type Stats } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

/** A file that cannot be used because of its kind or its owner. */
export class UnsafeFile extends Error {
  override readonly name = "UnsafeFile";
  readonly path: string;
  /** such as "it is a symbolic link" */
  readonly problem: string;

  constructor(path: string, problem: string, cause?: unknown) {
    super(`Cannot use "${path}": ${problem}`, { cause });
    this.path = path;
    this.problem = problem;
  }
}

type OwnFileUse = {
  readonly for: "read" | "append";
  /** Follow links, for a path that the operator chose. The kind is checked, the owner is not. */
  readonly followLinks?: boolean | undefined;
};

/** A file to append to is created with mode 0600. Throws UnsafeFile. */
export async function openOwnFile(path: string, use: OwnFileUse): Promise<FileHandle> {
  const handle = await open(path, flagsOf(use), 0o600).catch((error: unknown) => {
    throw explained(path, error);
  });
  try {
    const [facts, parent] = await Promise.all([handle.stat(), stat(dirname(path))]);
    check(path, { facts, parent, use });
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** As openOwnFile(), for code that must not wait. */
export function openOwnFileSync(path: string, use: OwnFileUse): number {
  let fd: number;
  try {
    fd = openSync(path, flagsOf(use), 0o600);
  } catch (error) {
    throw explained(path, error);
  }
  try {
    check(path, { facts: fstatSync(fd), parent: statSync(dirname(path)), use });
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

export async function readOwnFile(path: string, use: Omit<OwnFileUse, "for"> = {}): Promise<string> {
  await using file = await openOwnFile(path, { ...use, for: "read" });
  return await file.readFile("utf8");
}

function flagsOf({ for: purpose, followLinks = false }: OwnFileUse): number {
  const flags = purpose === "read" ? O_RDONLY : O_WRONLY | O_APPEND | O_CREAT;
  // Opening a pipe without its other end would block a thread.
  return flags | O_NONBLOCK | (followLinks ? 0 : O_NOFOLLOW);
}

type Checked = { facts: Stats; parent: Stats; use: OwnFileUse };

/** The owner of the directory can replace the file in any case, so its files are as trusted as the directory. */
function check(path: string, { facts, parent, use }: Checked): void {
  if (!facts.isFile()) throw new UnsafeFile(path, kindOf(facts));
  const trusted = [process.geteuid?.() ?? facts.uid, 0, parent.uid];
  if (!use.followLinks && !trusted.includes(facts.uid))
    throw new UnsafeFile(path, `it belongs to another user (uid ${facts.uid})`);
}

function kindOf(facts: Stats): string {
  if (facts.isDirectory()) return "it is a directory, not a file";
  if (facts.isFIFO()) return "it is a pipe, not a regular file";
  return "it is not a regular file";
}

/** What open() itself refuses. ENXIO: a socket, or a pipe that no process reads. */
function explained(path: string, error: unknown): unknown {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "ELOOP") return new UnsafeFile(path, "it is a symbolic link", error);
  if (code === "EISDIR") return new UnsafeFile(path, "it is a directory, not a file", error);
  if (code === "ENXIO" || code === "ENODEV") return new UnsafeFile(path, "it is not a regular file", error);
  return error;
}
