/** How contenders compete: in turns, a few at a time, each proving by the same question that it works. */
import { mapPool } from "@forkd/base";
import { Sandbox } from "@forkd/sdk";

export const code = "numpy.zeros(5).tolist()";
export const answer = "[0.0, 0.0, 0.0, 0.0, 0.0]";
/** The same as a program, for contenders without a warm interpreter. */
export const coldScript = "import numpy; print(numpy.zeros(5).tolist())";

/**
 * The order starts elsewhere in every round, because the first contender meets what the round before left.
 */
export function rotate<T>(items: readonly T[], by: number): T[] {
  const from = by % items.length;
  return [...items.slice(from), ...items.slice(0, from)];
}

export async function ask(sandbox: Sandbox): Promise<void> {
  const { result, error } = await sandbox.eval(code);
  if (result !== answer) throw new Error(`A child did not answer: ${error ?? result}`);
}

/** The sandboxes of a fork; throws unless there are `n`. */
export function allOf(entries: readonly unknown[], n: number): Sandbox[] {
  const failure = entries.find((entry) => !(entry instanceof Sandbox));
  const sandboxes = entries.filter((entry) => entry instanceof Sandbox);
  if (sandboxes.length < n)
    throw new Error(`Only ${sandboxes.length} of ${n} children started`, { cause: failure });
  return sandboxes;
}

/**
 * Runs `work` n times, `parallel` at once. Starts nothing after a failure, and rejects when nothing runs any
 * more.
 */
export async function inParallel(
  { n, parallel }: { n: number; parallel: number },
  work: (index: number) => Promise<void>,
): Promise<void> {
  const failures: unknown[] = [];
  await mapPool(Array.from({ length: n }), parallel, async (_, index) => {
    if (failures.length > 0) return;
    await work(index).catch((error: unknown) => failures.push(error));
  });
  if (failures.length > 0) throw failures[0];
}
