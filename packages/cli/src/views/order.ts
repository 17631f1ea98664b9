/** Orders for lists that people read. */

const collator = new Intl.Collator("en", { numeric: true });

/** Numbers in names count as numbers: t2 is before t10. */
export function compareNames(a: string, b: string): number {
  return collator.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);
}

type Dated = {
  readonly created_at_unix: number;
  readonly tag?: string | undefined;
  readonly id?: string | undefined;
};

/** The oldest first; of the same second, by name. */
export function byTime<T extends Dated>(items: readonly T[]): T[] {
  const nameOf = ({ tag, id }: Dated) => tag ?? id ?? "";
  return items.toSorted(
    (a, b) => a.created_at_unix - b.created_at_unix || compareNames(nameOf(a), nameOf(b)),
  );
}
