/** Filters by label: `name`, or `name=value`. */

export function hasLabels(labels: Readonly<Record<string, string>>, filters: readonly string[]): boolean {
  return filters.every((filter) => {
    const at = filter.indexOf("=");
    const name = at < 0 ? filter : filter.slice(0, at);
    return Object.hasOwn(labels, name) && (at < 0 || labels[name] === filter.slice(at + 1));
  });
}
