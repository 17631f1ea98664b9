/** Counted nouns in messages. Imports nothing. */

/** "1 sandbox", "3 sandboxes"; `many` is the plural where it is not the singular and an "s". */
export function plural(count: number, one: string, many = pluralOf(one)): string {
  return `${count} ${count === 1 ? one : many}`;
}

function pluralOf(one: string): string {
  if (/(?:[sx]|[cs]h)$/.test(one)) return `${one}es`;
  return /[^aeiou]y$/.test(one) ? `${one.slice(0, -1)}ies` : `${one}s`;
}
