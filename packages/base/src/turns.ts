/** Long work in short turns of the event loop, so that everybody else is served in between. */
import { setImmediate as nextTurn } from "node:timers/promises";

export { nextTurn };

/** Items that one turn sorts or merges: some milliseconds. */
const itemsPerTurn = 4096;

/** Sorts in place, like Array.prototype.sort(). At most `itemsPerTurn` items are done at once. */
export async function sortInTurns<T>(items: T[], compare: (a: T, b: T) => number): Promise<void> {
  if (items.length <= itemsPerTurn) return void items.sort(compare);
  for (let at = 0; at < items.length; at += itemsPerTurn) {
    const run = items.slice(at, at + itemsPerTurn).sort(compare);
    for (const [index, item] of run.entries()) items[at + index] = item;
    await nextTurn();
  }
  for (let width = itemsPerTurn; width < items.length; width *= 2) {
    const merged: T[] = [];
    for (let at = 0; at < items.length; at += 2 * width) {
      let steps = 0;
      for (const item of merge(items, { at, width, compare })) {
        merged.push(item);
        if (++steps % itemsPerTurn === 0) await nextTurn();
      }
    }
    for (const [index, item] of merged.entries()) items[index] = item;
  }
}

/** The items of two sorted runs of `width` that start at `at`, in order. */
function* merge<T>(
  items: readonly T[],
  { at, width, compare }: { at: number; width: number; compare: (a: T, b: T) => number },
): Generator<T> {
  const leftEnd = Math.min(at + width, items.length);
  const rightEnd = Math.min(at + 2 * width, items.length);
  for (let left = at, right = leftEnd; left < leftEnd || right < rightEnd;) {
    const takesLeft =
      right >= rightEnd || (left < leftEnd && compare(items[left] as T, items[right] as T) <= 0);
    yield items[takesLeft ? left++ : right++] as T;
  }
}
