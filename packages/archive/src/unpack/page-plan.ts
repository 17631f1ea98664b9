/** Where each page goes: for every chunk the places of its pages, and copies from files that are here already. */
import { chunkPages } from "../format/limits.ts";
import type { PageMap } from "../format/page-map.ts";
import { ownSegments, segmentAt, type Segment } from "../own-pages.ts";
import { Column } from "../run-list.ts";
import type { Targets } from "./expand.ts";

export type PagePlan = {
  /** per file that is not here, per chunk of its blob; empty for a chunk that is not needed */
  chunks: Map<number, Column[]>;
  /** per file that is here: pages of it that files being built repeat */
  copies: Map<number, Targets>;
  /** pages that are written */
  pages: number;
};

/** `built`: the files to write. Pages of `local` files can be copied from them. */
export function planPages(
  maps: readonly PageMap[],
  built: ReadonlySet<number>,
  local: ReadonlyMap<number, string>,
): PagePlan {
  const chunks = new Map<number, Column[]>();
  for (const [file, { chunkLengths }] of maps.entries()) {
    if (!local.has(file))
      chunks.set(
        file,
        Array.from(chunkLengths, () => new Column()),
      );
  }
  const segments = new Map<number, Segment[]>();
  const copies = new Map<number, Column>();
  let pages = 0;
  for (const file of built) {
    const { runs } = maps[file] ?? missing(file);
    for (let run = 0; run < runs.pages.length; run++) {
      const page = runs.pages[run] ?? 0;
      const count = runs.counts[run] ?? 0;
      const source = runs.sources[run] ?? 0;
      const part = { file, page, rank: runs.ranks[run] ?? 0, count };
      pages += count;
      const columns = chunks.get(source);
      if (columns) {
        addToChunks(columns, part);
        continue;
      }
      const from = segments.get(source) ?? ownSegments((maps[source] ?? missing(source)).runs, source);
      segments.set(source, from);
      const to = copies.get(source) ?? new Column();
      copies.set(source, to);
      addCopies(from, part, to);
    }
  }
  return { chunks, copies: new Map([...copies].map(([file, column]) => [file, column.take()])), pages };
}

type Part = { file: number; page: number; rank: number; count: number };

function addTarget(column: Column, file: number, page: number, source: number, count: number): void {
  column.push(file);
  column.push(page);
  column.push(source);
  column.push(count);
}

function addToChunks(columns: readonly Column[], { file, page, rank, count }: Part): void {
  for (let done = 0; done < count;) {
    const chunk = Math.floor((rank + done) / chunkPages);
    const inChunk = rank + done - chunk * chunkPages;
    const part = Math.min(count - done, chunkPages - inChunk);
    const column = columns[chunk];
    if (column) addTarget(column, file, page + done, inChunk, part);
    done += part;
  }
}

/** A page that no run of the source uses is left out; the digest of the result then differs. */
function addCopies(segments: readonly Segment[], { file, page, rank, count }: Part, to: Column): void {
  for (let done = 0; done < count;) {
    const found = segmentAt(segments, rank + done);
    if (!found) return;
    const skipped = rank + done - found.rank;
    const part = Math.min(count - done, found.count - skipped);
    addTarget(to, file, page + done, found.page + skipped, part);
    done += part;
  }
}

function missing(file: number): never {
  throw new Error(`Cannot plan file ${file} of the archive: it has no map`);
}
