/** Long enough for very slow hosts. A passing test does not wait that long. */
const defaultTimeoutMs = 120_000;

/** Resolves when `isTrue()` returns true. For conditions that no event announces. */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  timeoutMs = defaultTimeoutMs,
): Promise<void> {
  const late = performance.now() + timeoutMs;
  while (!(await isTrue())) {
    if (performance.now() > late) throw new Error(`Not true within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
