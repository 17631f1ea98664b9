/** Durations of the steps of a capture, in milliseconds. */

export class Stopwatch {
  readonly startedAt = performance.now();
  #last = this.startedAt;
  readonly laps: Record<string, number> = {};

  lap(name: string): void {
    const now = performance.now();
    this.laps[name] = round((this.laps[name] ?? 0) + now - this.#last);
    this.#last = now;
  }
}

export function round(ms: number): number {
  return Math.round(ms * 100) / 100;
}
