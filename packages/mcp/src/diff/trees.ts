/** Which files of two sandboxes differ: by their entries, and where those are equal by their content. */
import { AppError } from "@forkd/contract/wire";
import type { FileEntry } from "@forkd/contract";
import type { Forkd } from "@forkd/sdk";
import { Collector } from "../results/collector.ts";
import type { Guest } from "../tools/tool.ts";
import { walk } from "../walk.ts";

type Side = { readonly id: string; readonly entries: ReadonlyMap<string, FileEntry> };
export type Difference = {
  readonly path: string;
  readonly change: "added" | "removed" | "changed";
  readonly a?: FileEntry | undefined;
  readonly b?: FileEntry | undefined;
};

/** File systems of the kernel: their content differs in every sandbox and has no end. */
const notFiles: ReadonlySet<string> = new Set(["/proc", "/sys", "/dev", "/run"]);
const deepest = 64;
/** Bytes of paths that one command gets as arguments. */
const argumentBytes = 100_000;
/** Without sha256sum in the guest, files are read; more than this is not. */
const readBytes = 64 * 1024 * 1024;

type Context = { readonly forkd: Forkd; readonly guest: Guest; readonly signal: AbortSignal };

/** Lists what is below the paths. A path that does not exist has no entries. */
export async function listSide(
  context: Context,
  id: string,
  wanted: { paths: readonly string[]; limit: number },
): Promise<Side> {
  const entries = new Map<string, FileEntry>();
  for (const path of wanted.paths) {
    const own = await statOrNone(context, id, path);
    if (own === undefined) continue;
    entries.set(path, own);
    if (own.type !== "directory") continue;
    const tree = { id, path, depth: deepest, limit: wanted.limit - entries.size, skip: notFiles };
    const { entries: below, truncated } = await walk(context, tree);
    if (truncated)
      throw new AppError("invalid_request", `There are more than ${wanted.limit} files to compare in ${id}`, {
        details: { field: "paths", limit: wanted.limit },
        remedy: { action: "advice", text: "Give paths of smaller directories, or a higher max_files." },
      });
    for (const entry of below) entries.set(entry.path, entry);
  }
  return { id, entries };
}

async function statOrNone(
  { forkd, signal }: Context,
  id: string,
  path: string,
): Promise<FileEntry | undefined> {
  try {
    return await forkd.call("statFile", { id, path }, { signal });
  } catch (error) {
    if (error instanceof AppError && error.code === "file_not_found") return undefined;
    throw error;
  }
}

/** The differences, ordered by path. */
export async function compareSides(context: Context, a: Side, b: Side): Promise<Difference[]> {
  const found: Difference[] = [];
  const doubtful: string[] = [];
  for (const [path, entry] of a.entries) {
    const other = b.entries.get(path);
    if (other === undefined) found.push({ path, change: "removed", a: entry });
    else if (isOther(entry, other)) found.push({ path, change: "changed", a: entry, b: other });
    // Times say nothing: two sandboxes can write other content in the same second.
    else if (entry.type === "file" && entry.size > 0) doubtful.push(path);
  }
  for (const [path, entry] of b.entries)
    if (!a.entries.has(path)) found.push({ path, change: "added", b: entry });
  for (const path of await withOtherContent(context, { a, b, paths: doubtful }))
    found.push({ path, change: "changed", a: a.entries.get(path), b: b.entries.get(path) });
  return found.sort((one, two) => (one.path < two.path ? -1 : 1));
}

/** The content of a directory is its entries, which are compared themselves. */
function isOther(a: FileEntry, b: FileEntry): boolean {
  const isSame = a.type === b.type && a.mode === b.mode && a.uid === b.uid && a.gid === b.gid;
  return !isSame || a.target !== b.target || (a.type === "file" && a.size !== b.size);
}

async function withOtherContent(
  context: Context,
  { a, b, paths }: { a: Side; b: Side; paths: readonly string[] },
): Promise<string[]> {
  const other: string[] = [];
  let read = 0;
  for (const batch of batches(paths)) {
    const [left, right] = await Promise.all([digests(context, a.id, batch), digests(context, b.id, batch)]);
    for (const [index, path] of batch.entries()) {
      const [one, two] = [left?.[index], right?.[index]];
      if (one !== undefined && two !== undefined) {
        if (one !== two) other.push(path);
        continue;
      }
      read += a.entries.get(path)?.size ?? 0;
      if (read > readBytes)
        throw new AppError(
          "unsupported",
          "The guest has no sha256sum, and the files are too large to be read",
          {
            remedy: { action: "advice", text: "Give paths of smaller directories." },
          },
        );
      const contents = await Promise.all(
        [a.id, b.id].map((id) => context.guest.readFile(context.forkd, id, { path }, context.signal)),
      );
      if (Buffer.compare(contents[0] ?? Buffer.alloc(0), contents[1] ?? Buffer.alloc(0)) !== 0)
        other.push(path);
    }
  }
  return other;
}

function* batches(paths: readonly string[]): Generator<string[]> {
  let batch: string[] = [];
  let bytes = 0;
  for (const path of paths) {
    const size = Buffer.byteLength(path) + 1;
    if (bytes + size > argumentBytes || batch.length >= 2000) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(path);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}

/** One digest for each path, in order; undefined if the guest cannot compute them all. */
async function digests(
  { forkd, guest, signal }: Context,
  id: string,
  paths: readonly string[],
): Promise<string[] | undefined> {
  const output = new Collector();
  const request = { args: ["sha256sum", "--", ...paths], timeoutMs: 300_000 };
  try {
    const { exit_code } = await guest.runCommand(forkd, id, request, {
      signal,
      output: (stream, bytes) => stream === "stdout" && output.push(bytes),
    });
    if (exit_code !== 0) return undefined;
  } catch (error) {
    // No such program: the caller reads the files.
    if (error instanceof AppError && error.code === "guest_refused") return undefined;
    throw error;
  }
  const { head, missing, tail } = output.collected();
  const found = [
    ...Buffer.concat([head, tail])
      .toString("latin1")
      .matchAll(/^\\?([0-9a-f]{64}) /gm),
  ];
  return missing === 0 && found.length === paths.length ? found.map(([, digest]) => digest ?? "") : undefined;
}
