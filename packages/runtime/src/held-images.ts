/** Flat images that machines map or are about to map, by the id of their snapshot: they must not be evicted. */
export class HeldImages {
  readonly #counts = new Map<string, number>();

  get ids(): Set<string> {
    return new Set(this.#counts.keys());
  }

  /** Held until the result is called. */
  hold(id: string): () => void {
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
    return () => {
      const left = (this.#counts.get(id) ?? 1) - 1;
      if (left === 0) this.#counts.delete(id);
      else this.#counts.set(id, left);
    };
  }
}
