/** How long work takes, into a histogram. What fails is not counted: how long a failure took says nothing about the work. */
import type { Histogram } from "@forkd/base";

export async function timed<T>(histogram: Histogram, work: Promise<T>): Promise<T> {
  const startedAt = performance.now();
  const result = await work;
  histogram.observe((performance.now() - startedAt) / 1000);
  return result;
}

/** To the end of the stream. */
export async function timedStream<T>(
  histogram: Histogram,
  stream: AsyncIterable<T> | Promise<AsyncIterable<T>>,
): Promise<AsyncIterable<T>> {
  const startedAt = performance.now();
  const items = await stream;
  return (async function* () {
    yield* items;
    histogram.observe((performance.now() - startedAt) / 1000);
  })();
}
