/** Random numbers that are the same in every run, so that a failure can be reproduced. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 0 ≤ result < limit */
  below(limit: number): number {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * limit);
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }

  text(maxLength: number): string {
    const letters = ["a", "Z", "7", " ", "é", "漢", "🜲", "=", "\n"];
    return Array.from({ length: this.below(maxLength) }, () => letters[this.below(letters.length)]).join("");
  }
}
