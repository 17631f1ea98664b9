/** Where in its file each page of a file's blob is. */
import type { Runs } from "./format/page-map.ts";

/** Pages of a blob that follow each other in the file. */
export type Segment = { rank: number; page: number; count: number };

/** Ascending and disjoint. Where several places of the file have a page of the blob, one of them. */
export function ownSegments({ pages, counts, sources, ranks }: Runs, file: number): Segment[] {
  const own: Segment[] = [];
  for (let run = 0; run < pages.length; run++) {
    if (sources[run] !== file) continue;
    own.push({ rank: ranks[run] ?? 0, page: pages[run] ?? 0, count: counts[run] ?? 0 });
  }
  own.sort((a, b) => a.rank - b.rank);
  const segments: Segment[] = [];
  let next = 0;
  for (const { rank, page, count } of own) {
    const skipped = Math.max(0, next - rank);
    if (skipped >= count) continue;
    segments.push({ rank: rank + skipped, page: page + skipped, count: count - skipped });
    next = rank + count;
  }
  return segments;
}

/** The segment with a page of the blob. */
export function segmentAt(segments: readonly Segment[], rank: number): Segment | undefined {
  let low = 0;
  let high = segments.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((segments[middle]?.rank ?? 0) <= rank) low = middle + 1;
    else high = middle;
  }
  const found = segments[low - 1];
  return found && found.rank + found.count > rank ? found : undefined;
}
