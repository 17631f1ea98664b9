/** Makes the same call for several items and prints each outcome; the first failure sets the exit code. */
import { toErrorBody } from "@forkd/contract/wire";
import { exitCodeOf, inCliWords } from "./exit-code.ts";
import type { Output } from "./output.ts";
import { remedyOf } from "./remedies.ts";

type Batch = {
  readonly items: readonly string[];
  /** Key of the item in the JSON output. */
  readonly name: string;
  /** Key of success in the JSON output. */
  readonly done: string;
  /** One after the other, because an earlier call may affect a later one. */
  readonly inTurn?: true;
};

export async function forEach(
  out: Output,
  batch: Batch,
  call: (item: string) => Promise<unknown>,
): Promise<number> {
  const outcomes = await settle(batch, call);
  const failures = outcomes.map((outcome) =>
    outcome.status === "rejected" ? inCliWords(toErrorBody(outcome.reason)) : undefined,
  );
  if (out.json) {
    const entry = (item: string, index: number) => ({
      [batch.name]: item,
      [batch.done]: failures[index] === undefined,
      ...failures[index],
    });
    out.document(batch.items.map(entry));
  } else {
    for (const [index, item] of batch.items.entries()) {
      const failure = failures[index];
      if (failure === undefined) out.line(item);
      else out.report(`forkd: ${item}: ${failure.error}`);
    }
  }
  const first = failures.find((failure) => failure !== undefined);
  if (first === undefined) return 0;
  const remedy = remedyOf(first);
  if (!out.json && remedy !== undefined) out.report(`  ${remedy}`);
  return exitCodeOf(first.code);
}

async function settle(
  { items, inTurn }: Batch,
  call: (item: string) => Promise<unknown>,
): Promise<PromiseSettledResult<unknown>[]> {
  if (!inTurn) return Promise.allSettled(items.map((item) => call(item)));
  const outcomes: PromiseSettledResult<unknown>[] = [];
  for (const item of items) outcomes.push(...(await Promise.allSettled([call(item)])));
  return outcomes;
}
