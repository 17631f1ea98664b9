/** Names that a caller may have meant. Imports nothing. */

/** Longer texts are not names that were mistyped. */
const longestGiven = 64;
const mostNames = 5000;
const mostSuggestions = 3;

/** `{ similar }` for the details of an error, or nothing if no name is like `given`. */
export function similarNames(given: string, names: Iterable<string>): { similar?: string[] } {
  if (given.length === 0 || given.length > longestGiven) return {};
  const wanted = given.toLowerCase();
  const limit = wanted.length < 3 ? 1 : Math.min(3, Math.ceil(wanted.length / 4));
  const found: { name: string; distance: number }[] = [];
  let seen = 0;
  for (const name of names) {
    if (++seen > mostNames) break;
    const distance = distanceTo(wanted, name.toLowerCase(), limit);
    if (distance <= limit && distance < wanted.length) found.push({ name, distance });
  }
  found.sort((a, b) => a.distance - b.distance || (a.name < b.name ? -1 : 1));
  const similar = found.slice(0, mostSuggestions).map(({ name }) => name);
  return similar.length === 0 ? {} : { similar };
}

/** Mistakes in the name, or in its beginning: "pyhton" is close to "python-numpy". */
function distanceTo(wanted: string, name: string, limit: number): number {
  if (wanted.length >= 2 && name.startsWith(wanted)) return 0.5;
  const whole = Math.abs(name.length - wanted.length) > limit ? Infinity : editDistance(wanted, name, limit);
  if (wanted.length < 4 || name.length <= wanted.length) return whole;
  return Math.min(whole, editDistance(wanted, name.slice(0, wanted.length), limit) + 0.5);
}

/** Inserted, removed, replaced and swapped characters; Infinity once they are more than `limit`. */
function editDistance(a: string, b: string, limit: number): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(
        (last[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (last[j - 1] ?? 0) + (isSame ? 0 : 1),
        isSwapped ? (beforeLast[j - 2] ?? 0) + 1 : Infinity,
      );
    }
    if (Math.min(...row) > limit) return Infinity;
    [beforeLast, last] = [last, row];
  }
  return last[b.length] ?? Infinity;
}

/** The names in the details of an error. */
export function similarIn(details: Readonly<Record<string, unknown>>): string[] {
  const { similar } = details;
  return Array.isArray(similar)
    ? similar.filter((each) => typeof each === "string").slice(0, mostSuggestions)
    : [];
}
