/** Entries of the cache that builds of this process use. They are not removed. */
const users = new Map<string, number>();

/** What one build uses. Disposing it ends that. */
export class ImageLease implements Disposable {
  readonly #directories = new Set<string>();

  hold(directory: string): void {
    if (this.#directories.has(directory)) return;
    this.#directories.add(directory);
    users.set(directory, (users.get(directory) ?? 0) + 1);
  }

  [Symbol.dispose](): void {
    for (const directory of this.#directories) {
      const left = (users.get(directory) ?? 1) - 1;
      if (left === 0) users.delete(directory);
      else users.set(directory, left);
    }
    this.#directories.clear();
  }
}

export function isLeased(directory: string): boolean {
  return users.has(directory);
}
