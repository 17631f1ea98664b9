/** Ids of sandboxes in the form that people type: a prefix. Every verb accepts it. */

/** "sb-" and eight digits. */
const shortLength = 11;

/** Shortens ids to prefixes that no two of them share. */
export function shortIds(ids: readonly string[]): Map<string, string> {
  const known = new Set(ids);
  let length = shortLength;
  const isUnique = () => new Set([...known].map((id) => id.slice(0, length))).size === known.size;
  const longest = Math.max(0, ...ids.map((id) => id.length));
  while (length < longest && !isUnique()) length += 1;
  return new Map([...known].map((id) => [id, id.slice(0, length)]));
}

export function shortId(id: string): string {
  return id.slice(0, shortLength);
}
