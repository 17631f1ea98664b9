/** Progress and cancellation of long image work. */
import { AppError } from "@forkd/contract";
import type { Registries } from "@forkd/registry";
import type { ImageLease } from "./lease.ts";

export type BuildContext = {
  signal?: AbortSignal | undefined;
  /** `step` is one short word (`download`, `unpack`, …), `message` one line for a person */
  onProgress?: ((step: string, message: string) => void) | undefined;
  /** keeps the images that a build uses */
  lease?: ImageLease | undefined;
  /** certificates (PEM) that programs in the guest trust; absent: those of the image */
  caBundle?: Uint8Array | undefined;
  /** where images come from; absent: registries without credentials */
  registries?: Registries | undefined;
};

const linePeriodMs = 1000;

/** Reports at most one line a second and drops the lines in between. */
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
  if (signal?.aborted) throw cancelled(signal.reason);
}

export function cancelled(cause: unknown): AppError {
  return new AppError("cancelled", "Cannot build the image: the caller cancelled it", { cause });
}
