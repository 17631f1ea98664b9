/** Reads the files that a recipe names. They must be inside its directory, also through links. */
import { isUtf8 } from "node:buffer";
import { lstat, readdir, readFile, readlink, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, posix, relative, resolve, sep } from "node:path";
import { isErrno } from "@forkd/base";
import { advice } from "@forkd/contract";
import { sha256File } from "../files/digest.ts";
import { Invalid } from "./invalid.ts";

/** One file, directory or link that a recipe adds to the guest. */
export type RecipeFile = {
  /** path on the host */
  source: string;
  /** path in the guest */
  to: string;
  /** permission bits */
  mode: number;
} & ({ type: "file"; sha256: string } | { type: "directory" } | { type: "link"; target: string });

const maxFiles = 20_000;

/** An entry of `files`, or of a step that copies. */
export type FileEntry = {
  /** directory of the recipe */
  root: string;
  /** for messages, e.g. `files[2]` */
  field: string;
  entry: { from: string; to: string; mode?: string | undefined };
};

/** Adds an entry of a recipe to `files`, directories before their content. */
export async function addEntry(files: RecipeFile[], { root, field, entry }: FileEntry): Promise<void> {
  const source = await pathInRecipe(root, `${field}.from`, entry.from);
  const info = await lstat(source);
  if (info.isDirectory() && entry.mode !== undefined) {
    throw new Invalid(`${field}.mode: "${entry.from}" is a directory, whose files keep their own modes`, {
      remedy: advice('Remove "mode".'),
    });
  }
  const before = files.length;
  await addPath(files, { root, field, source, to: entry.to });
  const first = files[before];
  if (entry.mode !== undefined && first !== undefined) first.mode = Number.parseInt(entry.mode, 8);
}

type Path = { root: string; field: string; source: string; to: string };

async function addPath(files: RecipeFile[], { root, field, source, to }: Path): Promise<void> {
  if (files.length >= maxFiles) throw new Invalid(`${field}: more than ${maxFiles} files and directories`);
  const info = await lstat(source);
  const name = relative(root, source);
  if (info.isFile()) {
    const mode = (info.mode & 0o100) === 0 ? 0o644 : 0o755;
    files.push({ source, to, mode, type: "file", sha256: await sha256File(source) });
  } else if (info.isSymbolicLink()) {
    const target = await readlink(source);
    const inside = !isAbsolute(target) && isInside(root, resolve(dirname(source), target));
    if (!inside) throw new Invalid(`${field}.from: the link "${name}" points outside of the recipe`);
    files.push({ source, to, mode: 0o777, type: "link", target });
  } else if (info.isDirectory()) {
    files.push({ source, to, mode: 0o755, type: "directory" });
    for (const each of (await readdir(source)).sort()) {
      await addPath(files, { root, field, source: join(source, each), to: posix.join(to, each) });
    }
  } else {
    throw new Invalid(`${field}.from: "${name}" is neither a file, a directory nor a link`);
  }
}

/** The text of a file that the recipe names. */
export async function readText(
  root: string,
  field: string,
  { path, maxBytes }: { path: string; maxBytes: number },
): Promise<string> {
  const source = await fileInRecipe(root, field, path);
  if ((await stat(source)).size > maxBytes)
    throw new Invalid(`${field}: "${path}" is larger than ${maxBytes} bytes`);
  const bytes = await readFile(source);
  if (!isUtf8(bytes) || bytes.includes(0)) throw new Invalid(`${field}: "${path}" is not text in UTF-8`);
  return bytes.toString("utf8");
}

/** The real path of a file, not a directory, that the recipe names. */
export async function fileInRecipe(root: string, field: string, path: string): Promise<string> {
  const source = await pathInRecipe(root, field, path);
  if (!(await stat(source)).isFile()) throw new Invalid(`${field}: "${path}" is not a file`);
  return source;
}

/** The real path of what the recipe names. */
async function pathInRecipe(root: string, field: string, path: string): Promise<string> {
  const source = await realpath(join(root, path)).catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR", "ELOOP")) throw error;
    throw new Invalid(`${field}: "${path}" is not in the recipe`, { cause: error });
  });
  if (!isInside(root, source)) throw new Invalid(`${field}: "${path}" is outside of the recipe`);
  return source;
}

function isInside(root: string, path: string): boolean {
  return path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
}
