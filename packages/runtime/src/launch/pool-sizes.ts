/**
 * How many ready children each snapshot gets. A number that an operator set is kept as it is. The other
 * snapshots get what was asked for at once lately, the most recently used ones first, as far as the memory
 * budget goes. Pure.
 */

type Wish = {
  /** set by an operator */
  readonly pinned: number | undefined;
  /** the largest burst lately */
  readonly peak: number;
  readonly lastUsed: number;
  /** memory of one ready child */
  readonly childMib: number;
};

/** No single burst makes the pool start more than this. */
export const maxReady = 1000;

/** One number per wish, in order. */
export function poolSizes(wishes: readonly Wish[], budgetMib: number): number[] {
  const sizes = wishes.map(({ pinned }) => pinned ?? 0);
  let left = budgetMib - wishes.reduce((sum, { childMib }, at) => sum + (sizes[at] ?? 0) * childMib, 0);
  const automatic = wishes
    .map((wish, at) => ({ ...wish, at }))
    .filter(({ pinned, peak }) => pinned === undefined && peak > 0)
    .sort((a, b) => b.lastUsed - a.lastUsed);
  for (const { peak, childMib, at } of automatic) {
    const size = Math.max(0, Math.min(peak, maxReady, Math.floor(left / childMib)));
    sizes[at] = size;
    left -= size * childMib;
  }
  return sizes;
}
