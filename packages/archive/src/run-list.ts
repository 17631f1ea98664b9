/** Runs as they are found, in columns that grow. */
import type { Runs } from "./format/page-map.ts";

export class Column {
  #values = new Uint32Array(1024);
  length = 0;

  push(value: number): void {
    if (this.length === this.#values.length) {
      const larger = new Uint32Array(this.length * 2);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.length++] = value;
  }

  at(index: number): number {
    return this.#values[index] ?? 0;
  }

  increment(index: number): void {
    this.#values[index] = this.at(index) + 1;
  }

  take(): Uint32Array {
    return this.#values.slice(0, this.length);
  }
}

export class RunList {
  readonly #pages = new Column();
  readonly #counts = new Column();
  readonly #sources = new Column();
  readonly #ranks = new Column();

  get length(): number {
    return this.#pages.length;
  }

  /** `page` is after all pages that were added before. */
  add(page: number, source: number, rank: number): void {
    const last = this.length - 1;
    const count = this.#counts.at(last);
    const continues =
      last >= 0 &&
      this.#sources.at(last) === source &&
      this.#pages.at(last) + count === page &&
      this.#ranks.at(last) + count === rank;
    if (continues) {
      this.#counts.increment(last);
      return;
    }
    this.#pages.push(page);
    this.#counts.push(1);
    this.#sources.push(source);
    this.#ranks.push(rank);
  }

  take(): Runs {
    return {
      pages: this.#pages.take(),
      counts: this.#counts.take(),
      sources: this.#sources.take(),
      ranks: this.#ranks.take(),
    };
  }
}
