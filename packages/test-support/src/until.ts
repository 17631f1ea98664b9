/** Long, for hosts that are very slow; a test that passes does not wait for it. */
const patienceMs = 120_000;

/** Resolves when `isTrue` holds. For conditions that no event announces. */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  timeoutMs = patienceMs,
): Promise<void> {
  const late = performance.now() + timeoutMs;
  while (!(await isTrue())) {
    if (performance.now() > late) throw new Error(`Not true within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
