/** Enough to hide the time that one call takes on its way; more would only wait in the daemon. */
const width = 16;

/** Runs `work` on every item, several at a time. After a failure it starts no more and rejects. */
export async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  let hasFailed = false;
  const lane = async () => {
    for (const item of rest) {
      if (hasFailed) return;
      await work(item).catch((error: unknown) => {
        hasFailed = true;
        throw error;
      });
    }
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(width, items.length) }, lane));
  const failure = ended.find((end) => end.status === "rejected");
  if (failure) throw failure.reason;
}
