/** What every long piece of image work is given. */
import { AppError } from "@forkd/contract";

export type BuildContext = {
  signal?: AbortSignal | undefined;
  /** `step` is one short word (`download`, `unpack`, …), `message` one line for a person */
  onProgress?: ((step: string, message: string) => void) | undefined;
};

const linePeriodMs = 1000;

/** Passes on at most one line a second; the lines in between are dropped. */
export function throttleLines(
  report: (line: string) => void,
  now: () => number = Date.now,
): (line: string) => void {
  let last = Number.NEGATIVE_INFINITY;
  return (line) => {
    const time = now();
    if (time - last < linePeriodMs) return;
    last = time;
    report(line);
  };
}

/** Throws `cancelled` when the signal has fired. */
export function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new AppError("cancelled", "Cannot go on: cancelled", { cause: signal.reason });
}
