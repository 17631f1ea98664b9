/**
 * Flat images and views that machines use or are about to use, by the id of their snapshot: they must not be
 * evicted.
 */
export class ImageRefs {
  readonly #counts = new Map<string, number>();

  isHeld(id: string): boolean {
    return this.#counts.has(id);
  }

  /** Holds the image until the result is called; calling it again does nothing. */
  hold(id: string): () => void {
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
    let isHolding = true;
    return () => {
      if (!isHolding) return;
      isHolding = false;
      const left = (this.#counts.get(id) ?? 1) - 1;
      if (left === 0) this.#counts.delete(id);
      else this.#counts.set(id, left);
    };
  }
}
