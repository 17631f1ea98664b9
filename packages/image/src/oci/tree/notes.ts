/** What of an image is left out, for people. Counts everything and keeps the first few. */
const maxKept = 5;

export class Notes {
  readonly #kept: string[] = [];
  #count = 0;

  leaveOut(what: string): void {
    if (this.#count++ < maxKept) this.#kept.push(what);
  }

  /** `Left out: device node "dev/console", ... and 3 more`, or undefined. */
  get text(): string | undefined {
    if (this.#count === 0) return undefined;
    const more = this.#count - this.#kept.length;
    return `Left out: ${this.#kept.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  }
}
